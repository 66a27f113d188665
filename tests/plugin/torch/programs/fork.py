"""Forks around the first device. Argument: before (children make the first device), after (the parent had made one),
beside (children of a running rank use no device).

A child of a running rank leaves by C's exit(), so that exit handlers run there, without Python's finalisation, in which
PyTorch's own process group would wait for threads that the child does not have (over TCP, too).
"""

import ctypes
import os
import sys

import load  # noqa: F401
import torch
import torch.distributed as dist


kept = []  # see collectives.py: leave()


def run(prefix):
    dist.init_process_group("gloo")
    for _ in range(3):
        tensor = torch.ones(100_000)
        kept.append(tensor)
        dist.all_reduce(tensor)
        assert (tensor == dist.get_world_size()).all()
    print(f"{prefix}=right", flush=True)


def in_child(work):
    child = os.fork()
    if child == 0:
        status = 0
        try:
            work()
        except RuntimeError as error:
            print(f"child_error={error}", flush=True)
            status = 4
        ctypes.CDLL(None).exit(status)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


case = sys.argv[1]
if case == "before":
    sys.exit(in_child(lambda: (run("child"), dist.destroy_process_group())))
run("parent")
if case == "after":

    def again():
        store = dist.FileStore(os.path.join(os.getcwd(), f"store-{os.getpid()}"), 1)
        dist.ProcessGroupGloo(store, 0, 1)

    sys.exit(0 if in_child(again) == 4 else 5)
status = in_child(lambda: None)
assert status == 0, status
assert (
    sum(int(batch) for batch in torch.utils.data.DataLoader(range(8), num_workers=2, multiprocessing_context="fork"))
    == 28
)
tensor = torch.ones(1000)
dist.all_reduce(tensor)
assert (tensor == dist.get_world_size()).all()
print("parent_after=right")
