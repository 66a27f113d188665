#!/bin/bash
# In the guest with two emulated NICs: two ranks, each with its own NIC, reduce through DPDK's driver for it, and check
# the sums: in clear with each kind of collectives, sealed, and not at all with two keys.
#
#   all_reduce_over_pci.sh PATH-OF-all_reduce_perf
set -euo pipefail

perf=$1
folder=$(mktemp -d)
for key in 0 1; do
  (umask 077 && od -An -tx1 -N32 /dev/urandom | tr -d ' \n' > "$folder/key$key")
done

# rank NUMBER NAME SETTING...: its NIC is 0000:00:1NUMBER.0, its output goes to NAMENUMBER
rank() {
  env "${@:3}" RANK="$1" WORLD_SIZE=2 GLOO_BYPASS_LINK=pci GLOO_BYPASS_PCI_ADDRESS=0000:00:1$1.0 \
    GLOO_BYPASS_IPV4=10.78.0.$(($1 + 1))/24 "$perf" --store-dir "$folder/$2" --transports DPDK --collectives gloo,own \
    -b 4 -e 64K -f 128 -w 2 -n 5 -c 3 --timeout 40 > "$folder/$2$1" 2>&1
}

# right NAME SETTING...: all sums of both ranks are, and nothing went another way
right() {
  local status=0
  mkdir "$folder/$1"
  rank 1 "$@" &
  rank 0 "$@" || status=$?
  wait $! || status=$?
  cat "$folder/${1}0" "$folder/${1}1"
  ((status == 0)) || exit "$status"
  for number in 0 1; do
    grep -q "DPDK: DPDK device 0000:00:1$number.0 10.78.0.$((number + 1))" "$folder/${1}0"
  done
  grep -q 'Out of bounds values : 0 OK' "$folder/${1}0"
}

right clear
right sealed GLOO_BYPASS_SECURITY=encrypt "GLOO_BYPASS_KEY_FILE=$folder/key0"

mkdir "$folder/refused"
rank 1 refused GLOO_BYPASS_SECURITY=encrypt "GLOO_BYPASS_KEY_FILE=$folder/key1" &
if rank 0 refused GLOO_BYPASS_SECURITY=encrypt "GLOO_BYPASS_KEY_FILE=$folder/key0" || wait $!; then
  echo "ranks with two keys have reduced"
  exit 1
fi
cat "$folder/refused0" "$folder/refused1"
for number in 0 1; do
  grep -q 'the key of GLOO_BYPASS_KEY_FILE .* is another one on the peer' "$folder/refused$number"
done
