"""Runs the example named by its argument, and prints how many worker threads its group has, and how many are left once
the group is destroyed. They may abort Python's end (docs/pytorch.md)."""

import pathlib
import runpy
import sys
import time

import torch.distributed as dist

WORKER = "pt_gloo_runloop"  # so PyTorch names them; Debian's 1.13 and 2.6 do not


def workers():
    count = 0
    for path in pathlib.Path("/proc/self/task").glob("*/comm"):
        try:
            count += path.read_text().strip() == WORKER
        except OSError:  # the thread has ended meanwhile
            pass
    return count


def destroy_process_group(original=dist.destroy_process_group):
    print(f"workers={workers()}")
    original()
    end = time.monotonic() + 5
    while workers() and time.monotonic() < end:  # the kernel shows a thread that was joined a moment longer
        time.sleep(0.01)
    print(f"left={workers()}")


dist.destroy_process_group = destroy_process_group
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
