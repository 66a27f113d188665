#!/usr/bin/env python3
"""Collectives of Python objects: gathers, broadcasts and scatters dictionaries, and checks them on every rank.

    GLOO_DEVICE_TRANSPORT=DPDK python3 -m torch.distributed.run --nproc_per_node 2 examples/object_collectives.py

Debian's PyTorch needs some options more: see docs/pytorch.md.
"""

import argparse

import gloo_bypass  # the collectives need no more of this project; the check at the end does
import torch.distributed as dist


def report_of(rank, words):
    return {"rank": rank, "words": [f"word {i} of rank {rank}" for i in range(words)]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, default=1000, help="size of each rank's report (1000)")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    expected = [report_of(r, options.words) for r in range(size)]

    # All ranks' reports, on every rank. Their pickled sizes may differ.
    reports = [None] * size
    dist.all_gather_object(reports, report_of(rank, options.words))
    assert reports == expected, "all_gather_object"

    # Rank 0's settings, to all.
    settings = [{"learning rate": 0.1, "layers": [4, 8]}, "seed 7"] if rank == 0 else [None, None]
    dist.broadcast_object_list(settings, src=0)
    assert settings == [{"learning rate": 0.1, "layers": [4, 8]}, "seed 7"], "broadcast_object_list"

    # One part to each rank, from the last one.
    part = [None]
    dist.scatter_object_list(part, [("part", r) for r in range(size)] if rank == size - 1 else None, src=size - 1)
    assert part == [("part", rank)], "scatter_object_list"

    checked = [None] * size
    dist.all_gather_object(checked, True)
    dist.barrier()
    gloo_bypass.require_transport()  # the bytes went over GLOO_DEVICE_TRANSPORT's transport
    if rank == 0:
        print(f"words gathered: {sum(len(report['words']) for report in reports)}")
        print(f"checked: {len(checked)} ranks have all reports, the settings and their part")
    # Over Gloo's TCP, PyTorch 2.6's destroy_process_group hangs now and then if another rank has ended before. Without
    # it, ranks of 2.13 abort now and then at their end.
    if gloo_bypass.stats():  # empty over Gloo's TCP
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
