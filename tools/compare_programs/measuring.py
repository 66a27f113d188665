"""What a program measures with: the process group, which counts what goes through it, and samples of seconds."""

import ctypes
import time

import torch.distributed as dist


class Group:
    """The process group, and what went through it: `reduced_bytes` counts the vectors that were all-reduced."""

    def __init__(self):
        self.rank, self.size, self.reduced_bytes = dist.get_rank(), dist.get_world_size(), 0

    def all_reduce(self, tensor):
        self.reduced_bytes += tensor.numel() * tensor.element_size()
        dist.all_reduce(tensor)

    def barrier(self):
        dist.barrier()


class Samples:
    """Seconds, by quantity, the bytes of the vector and the milliseconds of computing before it; written as
    microseconds."""

    def __init__(self):
        self.rows = {}

    def add(self, seconds, quantity, size=0, compute_ms=0):
        self.rows.setdefault((quantity, size, compute_ms), []).append(seconds)

    def as_records(self):
        return [
            {
                "quantity": quantity,
                "bytes": size,
                "compute_ms": compute_ms,
                "samples_us": [round(1e6 * one, 3) for one in seconds],
            }
            for (quantity, size, compute_ms), seconds in self.rows.items()
        ]


def seconds_since(begin):
    return time.perf_counter() - begin


def bytes_of(tensor):
    """A copy of a contiguous tensor's memory; its numbers may be of a kind that numpy does not know."""
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
