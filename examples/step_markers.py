#!/usr/bin/env python3
"""Marks each step's all-reduce in captures: a communication hook of DistributedDataParallel that sends two UDP
datagrams a step.

    export GLOO_DEVICE_TRANSPORT=DPDK GLOO_BYPASS_CAPTURE=/tmp/rank%r-%p.pcapng GLOO_BYPASS_CAPTURE_MARKERS=127.0.0.1
    python3 -m torch.distributed.run --nproc_per_node 2 examples/step_markers.py --to 127.0.0.1

capture_analyser (tools/capture) turns rank 0's capture into bytes, time and throughput of each step. Over UDP, and
between hosts, capture with tcpdump, which sees both frames and markers; it sees nothing of DPDK's shared memory:

    export GLOO_DEVICE_TRANSPORT=UDP
    tcpdump -i lo -s 128 -w /tmp/run.pcap &
    python3 -m torch.distributed.run --nproc_per_node 2 examples/step_markers.py --to 127.0.0.1

Without --to the markers go to rank 0 itself, which checks that they came. Debian's PyTorch needs some options more: see
docs/pytorch.md.
"""

import argparse
import socket
import threading

import gloo_bypass  # registers the transports
import torch
import torch.distributed as dist
import torch.distributed.nn  # noqa: F401  before the group, which it would keep beyond its end (docs/pytorch.md)
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel


class StepMarkers:
    """Sends from port 40000 + step: when the first bucket is handed over, and when the last one has completed."""

    def __init__(self, address, port):
        self.destination = (address, port)
        self.lock = threading.Lock()  # buckets complete in Gloo's threads
        self.step = self.pending = 0
        self.all_handed_over = False

    def send(self, which):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as marker:
            marker.bind(("", 40000 + self.step % 25536))
            marker.sendto(f"gloo-bypass step {self.step} {which}\n".encode(), self.destination)

    def done(self, future):
        with self.lock:
            self.pending -= 1
            if self.all_handed_over and self.pending == 0:
                self.send("last")
        return future.value()

    def hook(self, group, bucket):
        with self.lock:
            if bucket.index() == 0:
                self.step += 1
                self.send("first")
            self.pending += 1
            self.all_handed_over = bucket.is_last()
        return allreduce_hook(group, bucket).then(self.done)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", metavar="ADDRESS", help="where markers go (rank 0 itself)")
    parser.add_argument("--port", type=int, default=9999, help="with --to (9999)")
    parser.add_argument("--steps", type=int, default=5, help="training steps (5)")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 8))
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.02)  # several buckets, as a large model has
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if rank == 0:
        receiver.bind(("127.0.0.1", 0))
        markers = StepMarkers(options.to or "127.0.0.1", options.port if options.to else receiver.getsockname()[1])
        parallel.register_comm_hook(None, markers.hook)
    else:
        parallel.register_comm_hook(None, allreduce_hook)

    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05)
    for step in range(options.steps):
        generator = torch.Generator().manual_seed(100 * step + rank)
        optimizer.zero_grad()
        parallel(torch.randn(8, 64, generator=generator)).square().mean().backward()
        optimizer.step()
    dist.barrier()
    gloo_bypass.require_transport()  # the bytes went over GLOO_DEVICE_TRANSPORT's transport
    if rank == 0:
        print(f"sum of the parameters: {sum(p.double().sum().item() for p in model.parameters()):.12f}")
        if not options.to:
            receiver.settimeout(5)
            came = [receiver.recvfrom(200) for _ in range(2 * options.steps)]
            expected = [
                (40000 + step, f"gloo-bypass step {step} {which}\n".encode())
                for step in range(1, options.steps + 1)
                for which in ("first", "last")
            ]
            assert [(source[1], text) for text, source in came] == expected, came
        print(f"checked: {size} ranks trained {options.steps} steps, each between two markers")
    # Over Gloo's TCP, PyTorch 2.6's destroy_process_group hangs now and then if another rank has ended before. Without
    # it, ranks of 2.13 abort now and then at their end.
    if gloo_bypass.stats():  # empty over Gloo's TCP
        del parallel  # it holds the group
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
