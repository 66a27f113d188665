"""Forks around the first device. Argument: before (children make the first device), after (the parent had made one), beside (the child
of a running rank only exits)."""
import os
import sys

import load  # noqa: F401
import torch
import torch.distributed as dist


def run(prefix):
    dist.init_process_group("gloo")
    for _ in range(3):
        tensor = torch.ones(100_000)
        dist.all_reduce(tensor)
        assert (tensor == dist.get_world_size()).all()
    print(f"{prefix}=right", flush=True)


def in_child(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        except RuntimeError as error:
            print(f"child_error={error}", flush=True)
            sys.exit(4)
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


case = sys.argv[1]
if case == "before":
    sys.exit(in_child(lambda: run("child")))
run("parent")
if case == "after":
    def again():
        store = dist.FileStore(os.path.join(os.getcwd(), f"store-{os.getpid()}"), 1)
        dist.ProcessGroupGloo(store, 0, 1)
    sys.exit(0 if in_child(again) == 4 else 5)
status = in_child(lambda: None)
assert status == 0, status
tensor = torch.ones(1000)
dist.all_reduce(tensor)
assert (tensor == dist.get_world_size()).all()
print("parent_after=right")
