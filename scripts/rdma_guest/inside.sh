#!/bin/sh
# The guest's init, second half, on the host's files: devices as asked for in /run/guest/settings, then the command in
# /run/guest/command. Three virtio ports lead to scripts/rdma-guest: the command's stdout and stderr, and control, which gets one
# line "start" when all is ready and one "end STATUS", or one "failure TEXT".
# The end of each of the two streams is marked by a token, so that nothing is cut off.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
. /run/guest/settings

mkdir -p /dev/pts /dev/shm
mount -t devpts -o mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t cgroup2 cgroup /sys/fs/cgroup 2> /dev/null
mount -t debugfs debugfs /sys/kernel/debug 2> /dev/null
ln -sf /proc/self/fd /dev/fd
ln -sf fd/0 /dev/stdin
ln -sf fd/1 /dev/stdout
ln -sf fd/2 /dev/stderr

port() {
  for entry in /sys/class/virtio-ports/*; do
    [ "$(cat "$entry/name")" != "$1" ] || echo "/dev/${entry##*/}"
  done
}
exec 5> "$(port control)"

end() {
  sync
  echo "$*" >&5
  sleep 5  # the host ends the guest; this is for when it does not
  echo o > /proc/sysrq-trigger
  sleep 60
}

# set-up step: its messages are the failure's text
prepare() {
  "$@" > /run/guest/log 2>&1 || end "failure '$*': $(tail -n 1 /run/guest/log)"
}

hostname rdma-guest
printf '127.0.0.1 localhost\n10.77.0.1 rdma-guest\n' > /etc/hosts
prepare ip link set lo up
number=0
while [ "$number" -lt "$RXE_DEVICES" ]; do
  prepare "$SCRIPTS/softroce" up --name "rxe$number" --interface "roce$number" --create "10.77.$number.1/24"
  number=$((number + 1))
done
modprobe sch_netem
modprobe rdma_ucm
ulimit -l unlimited
ulimit -c 0

mkfifo /run/guest/out /run/guest/err
cat /run/guest/out > "$(port out)" &
out=$!
cat /run/guest/err > "$(port err)" &
err=$!
echo start >&5
setsid /bin/bash /run/guest/command > /run/guest/out 2> /run/guest/err < /dev/null 5>&-
status=$?
# A process that the command left behind may hold its streams open for ever.
(sleep 5; kill "$out" "$err") 2> /dev/null &
wait "$out" "$err"
printf %s "$END_TOKEN" > "$(port out)"
printf %s "$END_TOKEN" > "$(port err)"
end "end $status"
