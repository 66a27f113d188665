#!/bin/busybox sh
# shellcheck shell=dash
# The guest's init, first half: reaches the host's files and changes over to them. The root is an overlay: the host's whole
# file system, read-only, below one in memory. What the kernel's command line says:
#   guest.run=PATH      the host's folder with this run's settings
#   guest.modules=PATH  the host's folder lib/modules/VERSION of this kernel
/bin/busybox --install -s /bin
export PATH=/bin

die() {
  echo "guest-failure: $*" > /dev/console
  sleep 1
  echo o > /proc/sysrq-trigger
  sleep 10
}

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
while read -r module; do
  insmod "/modules/$module" || die "module $module does not load"
done < /modules/order

read -r words < /proc/cmdline
for word in $words; do
  case $word in
    guest.run=*) run=${word#*=} ;;
    guest.modules=*) modules=${word#*=} ;;
  esac
done

options=trans=virtio,version=9p2000.L,msize=512000,cache=loose
mount -t 9p -o "ro,$options" root /host || die "the host's files cannot be mounted"
mount -t tmpfs -o size=75% space /space
mkdir /space/upper /space/work
mount -t overlay -o lowerdir=/host,upperdir=/space/upper,workdir=/space/work root /new || die "no overlay over the host's files"

mount -t tmpfs -o mode=755 run /new/run
mkdir /new/run/guest
mkdir /new/run/guest/bin
cp /bin/busybox /new/run/guest/bin/
/bin/busybox --install -s /new/run/guest/bin
cp "/host$run"/* /new/run/guest/ || die "the settings of this run cannot be read"
mkdir -p "/new/lib/modules/$(uname -r)"
mount -o bind "/host$modules" "/new/lib/modules/$(uname -r)" || die "the kernel's modules cannot be reached"

# Folders in which the command leaves its results: written through to the host.
number=0
while read -r folder; do
  mount -t 9p -o "rw,$options" "share$number" "/new$folder" || die "$folder cannot be mounted"
  number=$((number + 1))
done < /new/run/guest/writable

for place in proc sys dev; do mount -o move /$place /new/$place; done
# shellcheck disable=SC2093
exec switch_root /new /run/guest/bin/busybox sh /run/guest/inside.sh
die "no shell on the host's root"
