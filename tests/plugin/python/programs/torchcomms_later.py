"""Enables torchcomms after the import, then makes a group; the argument says how: "config" or "variable"."""

import os
import sys

import torch.distributed as dist

try:
    import gloo_bypass  # noqa: F401
except ImportError as error:
    print(f"import: {error}")
if sys.argv[1] == "config":
    dist.config.use_torchcomms = True
elif sys.argv[1] == "variable":
    os.environ["TORCH_DISTRIBUTED_USE_TORCHCOMMS"] = "1"
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
print("group")
dist.destroy_process_group()
