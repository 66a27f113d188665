"""Loads the plug-in as LOAD says; LD_PRELOAD needs nothing. Programs here begin with `import load`."""

import atexit
import os

import torch

for way in os.environ.get("LOAD", "").split("+"):
    if way == "import":
        import gloo_bypass  # noqa: F401
    elif way == "load_library":
        torch.ops.load_library(os.environ["PLUGIN_LIBRARY"])

# A rank of PyTorch 2.13 that ends with its groups aborts now and then, over TCP too: "terminate called without an
# active exception". Debian's does not. Imported later, torch.distributed.nn keeps the group (docs/pytorch.md).
if "PLUGIN_PYTHON" in os.environ:
    import torch.distributed.nn

    atexit.register(lambda: torch.distributed.is_initialized() and torch.distributed.destroy_process_group())


def leave_together():
    """If no collective shows that all ranks are there, rank 0 stays until all are: it holds the store, and another rank
    may still need a third's address. Uses the store: a barrier would connect ranks that never talk."""
    store = torch.distributed.distributed_c10d._get_default_store()
    store.set(f"leaves/{torch.distributed.get_rank()}", "")
    if torch.distributed.get_rank() == 0:
        store.wait([f"leaves/{rank}" for rank in range(torch.distributed.get_world_size())])
