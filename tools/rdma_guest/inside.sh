#!/bin/sh
# The guest's init, second half, on the host's files: devices as asked for in settings, then the command, both beside this file.
# Three virtio ports lead to scripts/rdma-guest: the command's stdout and stderr, and control, which gets one line "start" when
# all is ready and one "end STATUS", or one "failure TEXT". A token marks the end of each of the two streams, so that nothing
# is cut off. Busybox runs this and its simple commands: each program that is loaded from the host takes its time.
here=/run/guest
# shellcheck source=/dev/null
. "$here/settings"
host=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH=$here/bin:$host

mkdir -p /dev/pts /dev/shm
mount -t devpts -o mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t cgroup2 cgroup /sys/fs/cgroup
echo +cpu > /sys/fs/cgroup/cgroup.subtree_control  # so that groups below may have a quota of processor time
mount -t debugfs debugfs /sys/kernel/debug
ln -sf /proc/self/fd /dev/fd
for stream in 0:in 1:out 2:err; do ln -sf "fd/${stream%:*}" "/dev/std${stream#*:}"; done

port() {
  for entry in /sys/class/virtio-ports/*; do
    read -r name < "$entry/name"
    [ "$name" != "$1" ] || echo "/dev/${entry##*/}"
  done
}
exec 5> "$(port control)"

end() {
  sync
  echo "$*" >&5
  sleep 10  # the host ends the guest; this is for when it does not
  echo o > /proc/sysrq-trigger
  sleep 60
}

# prepare COMMAND...: a step of the set-up, with the host's programs; what it says last is the failure's text.
prepare() {
  PATH=$host "$@" > "$here/log" 2>&1 || end "failure '$*': $(tail -n 1 "$here/log")"
}

hostname rdma-guest
printf '127.0.0.1 localhost\n%s rdma-guest\n' "$ADDRESS" > /etc/hosts
ip link set lo up
number=0
while [ "$number" -lt "$RXE_DEVICES" ]; do
  prepare "$SOFTROCE" up --name "rxe$number"
  number=$((number + 1))
done
[ "$RXE_DEVICES" -eq 0 ] || prepare modprobe rdma_ucm
if [ "$PCI_NICS" -gt 0 ]; then
  # shellcheck source=/dev/null
  . "$here/pci_nics.sh"
fi
# shellcheck disable=SC3045
ulimit -l unlimited
# shellcheck disable=SC3045
ulimit -c 0

mkfifo "$here/out" "$here/err"
cat "$here/out" > "$(port out)" &
out=$!
cat "$here/err" > "$(port err)" &
err=$!
echo start >&5
PATH=$host setsid /bin/bash "$here/command" > "$here/out" 2> "$here/err" < /dev/null 5>&-
status=$?
# A process that the command left behind may hold its streams open for ever: a cat that has waited for input for 5 s is
# ended. One that writes waits for whoever reads the host's end, as long as that takes.
end_when_idle() {
  idle=0
  while [ "$idle" -lt 5 ]; do
    sleep 1
    kill -0 "$1" || return
    call=read
    read -r call _ < "/proc/$1/syscall"  # proc_pid_syscall(5); on x86-64, 1 is write
    case $call in
      1 | running) idle=0 ;;
      *) idle=$((idle + 1)) ;;
    esac
  done
  kill "$1"
}
for stream in "$out" "$err"; do end_when_idle "$stream" 2> /dev/null & done
wait "$out" "$err"
printf %s "$END_TOKEN" > "$(port out)"
printf %s "$END_TOKEN" > "$(port err)"
end "end $status"
