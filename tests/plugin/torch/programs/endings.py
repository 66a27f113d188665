"""Ways in which a process can end without a message to its peers."""

import os
import signal
import sys

import torch.distributed as dist


def join():
    """A store in a file: one in rank 0 would end with it."""
    dist.init_process_group(
        "gloo",
        init_method="file://" + os.path.abspath("store"),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )


def end(how):
    """`how`: "_exit", as multiprocessing's children end; "exec", "kill", "exit"."""
    sys.stdout.flush()
    if how == "exec":
        os.execv("/bin/true", ["true"])
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        sys.exit(0)
    os._exit(0)
