#!/bin/bash
# In the guest, where `softroce up` has made rxe0: up, down and status, and that down undoes exactly what up did.
#
#   softroce_test.sh PATH-OF-softroce
set -euo pipefail

softroce=$1
fail() { echo "softroce_test: $*" >&2; exit 1; }
# shows TEXT ARGUMENTS...: softroce must succeed and print TEXT
shows() {
  local text=$1 said
  shift
  said=$("$softroce" "$@") || fail "softroce $* failed: $said"
  [[ $said == *"$text"* ]] || fail "softroce $* said: $said"
}
# fails TEXT ARGUMENTS...: softroce must fail with one line that has TEXT in it
fails() {
  local text=$1 said
  shift
  said=$("$softroce" "$@" 2>&1) && fail "softroce $* did not fail"
  [[ $(tail -n 1 <<< "$said") == *"$text"* ]] || fail "softroce $* said: $said"
}

# A second up changes nothing.
before=$(rdma link show; ip -br address)
"$softroce" up > /dev/null
[[ $(rdma link show; ip -br address) == "$before" ]] || fail "a second up changed something"
shows "port ACTIVE, RDMA packets of 4096 bytes" status --name rxe0
shows "::ffff:10.77.0.1, RoCE v2" status

# On an interface that up did not make: down leaves it.
ip link add other0 type veth peer name other1
ip link set other1 up
ip link set other0 up
ip address add 10.99.0.1/24 dev other0
shows "RDMA packets of 1024 bytes" up --name rxe7 --interface other0  # for its MTU is 1500
fails "is on interface other0, not other1" up --name rxe7 --interface other1
"$softroce" down --name rxe7
[[ ! -e /sys/class/infiniband/rxe7 && -e /sys/class/net/other0 ]] || fail "down of rxe7 left the device or took the interface"

# On an interface that up made: down removes it; twice is fine; the other device stays.
"$softroce" up --name rxe5 --address 10.98.0.1/24 > /dev/null
[[ -e /sys/class/net/roce5 ]] || fail "no interface roce5"
"$softroce" down --name rxe5
"$softroce" down --name rxe5
[[ ! -e /sys/class/net/roce5 && -e /sys/class/infiniband/rxe0 ]] || fail "down of rxe5"

# down does not remove what up did not make.
rdma link add rxe9 type rxe netdev other0
fails "was not made by softroce up" down --name rxe9
rdma link delete rxe9

fails "there is no interface nosuch0" up --name rxe6 --interface nosuch0
fails "no active device rxe6" status --name rxe6
fails "unknown argument '--nonsense'" up --nonsense
fails "unknown verb 'sideways'" sideways
fails "--name needs a value" up --name

# Data crosses it.
port=$((20000 + RANDOM % 10000))
timeout 30 ibv_rc_pingpong -d rxe0 -g 1 -n 50 -p "$port" > /dev/null &
for ((i = 0; i < 100; i++)); do
  ss -ltn | grep -q ":$port " && break
  sleep 0.1
done
timeout 30 ibv_rc_pingpong -d rxe0 -g 1 -n 50 -p "$port" 10.77.0.1 | tail -n 1
wait
ip link delete other0
