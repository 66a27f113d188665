"""Loads the plug-in as LOAD says; with LD_PRELOAD there is nothing to do. Programs here begin with `import load`."""
import os

import torch

for way in os.environ.get("LOAD", "").split("+"):
    if way == "import":
        import gloo_bypass  # noqa: F401
    elif way == "load_library":
        torch.ops.load_library(os.environ["PLUGIN_LIBRARY"])
