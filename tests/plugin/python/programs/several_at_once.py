"""All-reduces that are started together and then waited for: how long all of them take, and whether each sum is right.

    scripts/fabric-run --transport UDP --ranks 2 --defaults rate=1000Mbit/s,delay=150ms,queue=64MiB --timeout 600 -- \\
        PYTHON tests/plugin/python/programs/several_at_once.py bypass 32 8192,1048576 5
    ... several_at_once.py gloo 32 8192,1048576 5         # for comparison; with --transport TCP over Gloo's TCP
    ... several_at_once.py bypass 32 8192,1048576 5 --ranks-a-host 2 --over DPDK    # memory links within each host

PYTHON has PyTorch and the package, and an absolute path: fabric-run starts it in folders of its own.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist


def run(vectors, rank, size):
    """Seconds."""
    for index, vector in enumerate(vectors):
        vector.fill_(rank + index)
    dist.barrier()
    begun = time.monotonic()
    works = [dist.all_reduce(vector, async_op=True) for vector in vectors]
    for work in works:
        work.wait()
    took = time.monotonic() - begun
    for index, vector in enumerate(vectors):
        expected = size * (size - 1) / 2 + size * index
        assert vector[0] == vector[-1] == expected, (index, vector, expected)
    return took


def start_ranks(count, over):
    """Runs this program again, as all ranks of this host; whether all of them succeed. A host's memory links are its
    own."""
    with tempfile.TemporaryDirectory(prefix="gbs") as sockets:
        ranks = []
        for local in range(count):
            environment = {
                **os.environ,
                "RANK": str(int(os.environ["RANK"]) * count + local),
                "WORLD_SIZE": str(int(os.environ["WORLD_SIZE"]) * count),
                "LOCAL_RANK": str(local),
                "LOCAL_WORLD_SIZE": str(count),
                "GLOO_DEVICE_TRANSPORT": over or os.environ["GLOO_DEVICE_TRANSPORT"],
                "GLOO_BYPASS_MEMIF_DIRECTORY": sockets,
            }
            ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=environment))
        return not any([rank.wait() for rank in ranks])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("backend")
    parser.add_argument("number", type=int, help="how many at once")
    parser.add_argument("lengths", type=lambda text: [int(word) for word in text.split(",")], help="bytes of each: A,B")
    parser.add_argument("repeats", type=int)
    parser.add_argument("--ranks-a-host", type=int, default=1, help="each host starts so many (default 1)")
    parser.add_argument("--over", help="their GLOO_DEVICE_TRANSPORT, where the network's is another")
    options = parser.parse_args()
    if options.ranks_a_host > 1 and "LOCAL_WORLD_SIZE" not in os.environ:
        sys.exit(0 if start_ranks(options.ranks_a_host, options.over) else 1)
    backend, number = options.backend, options.number
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    for length in options.lengths:
        vectors = [torch.empty(length // 4) for _ in range(number)]
        run(vectors, rank, size)
        taken = [run(vectors, rank, size) for _ in range(options.repeats)]
        if rank == 0:
            name = f"{backend} over {os.environ.get('GLOO_DEVICE_TRANSPORT', 'the default')}"
            print(
                f"{name}: {number} of {length} B: median {statistics.median(taken):.3g} s, "
                f"{min(taken):.3g} to {max(taken):.3g}",
                flush=True,
            )
    if backend == "bypass" or os.environ.get("GLOO_DEVICE_TRANSPORT", "TCP") != "TCP":
        import gloo_bypass

        gloo_bypass.require_transport()
    print(f"right={number}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
