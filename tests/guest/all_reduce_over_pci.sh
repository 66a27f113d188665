#!/bin/bash
# In the guest with two emulated NICs: two ranks, each with its own NIC, reduce through DPDK's driver for it, and check
# the sums.
#
#   all_reduce_over_pci.sh PATH-OF-all_reduce_perf
set -euo pipefail

perf=$1
store=$(mktemp -d)

# rank NUMBER: its NIC is 0000:00:1NUMBER.0
rank() {
  RANK=$1 WORLD_SIZE=2 GLOO_BYPASS_LINK=pci GLOO_BYPASS_PCI_ADDRESS=0000:00:1$1.0 GLOO_BYPASS_IPV4=10.78.0.$(($1 + 1))/24 \
    "$perf" --store-dir "$store" --transports DPDK -b 4 -e 64K -f 128 -w 2 -n 5 -c 3 --timeout 40
}

rank 1 > "$store/rank1" 2>&1 &
status=0
rank 0 > "$store/rank0" 2>&1 || status=$?
wait $! || status=$?
cat "$store/rank0" "$store/rank1"
((status == 0)) || exit "$status"
# Nothing went another way, and all sums are right.
for number in 0 1; do
  grep -q "DPDK: DPDK device 0000:00:1$number.0 10.78.0.$((number + 1))" "$store/rank0"
done
grep -q 'Out of bounds values : 0 OK' "$store/rank0"
