"""Loads the plug-in as LOAD says; with LD_PRELOAD there is nothing to do. Programs here begin with `import load`."""
import atexit
import os

import torch

for way in os.environ.get("LOAD", "").split("+"):
    if way == "import":
        import gloo_bypass  # noqa: F401
    elif way == "load_library":
        torch.ops.load_library(os.environ["PLUGIN_LIBRARY"])

# A rank of PyTorch 2.13 that ends with its groups aborts now and then, over TCP too: "terminate called without an
# active exception". Debian's does not.
if "PLUGIN_PYTHON" in os.environ:
    atexit.register(lambda: torch.distributed.is_initialized() and torch.distributed.destroy_process_group())
