"""Where ranks of one machine wait for each other and do nothing else: what is left of an all-reduce that costs nothing.

with Meeting(group) as meeting:
    meeting.meet()          # returns once every rank has called it as often
"""

import mmap
import tempfile

import torch.distributed as dist

WIDTH = 8  # bytes of a count
STRIDE = 64 // WIDTH  # a cache line a rank


class Meeting:
    """Each rank counts its calls in memory that all share, and looks at the others' counts without a pause."""

    def __init__(self, group):
        self.group, self.count = group, 0

    def __enter__(self):
        size, made = self.group.size * STRIDE * WIDTH, None
        if self.group.rank == 0:
            made = tempfile.NamedTemporaryFile()
            made.truncate(size)
        name = [made.name if made else None]
        dist.broadcast_object_list(name)
        with open(name[0], "r+b") as file:
            self.counts = memoryview(mmap.mmap(file.fileno(), size)).cast("q")
        self.group.barrier()
        if made:
            made.close()
        return self

    def __exit__(self, *unused):
        self.counts.release()

    def meet(self):
        self.count += 1
        self.counts[self.group.rank * STRIDE] = self.count
        for rank in range(self.group.size):
            while self.counts[rank * STRIDE] < self.count:
                pass
