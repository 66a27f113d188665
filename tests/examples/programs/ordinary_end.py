"""Runs the example named by its argument, and prints whether it has left its group alive. An example that ends the
process by itself prints nothing."""

import runpy
import sys

import torch.distributed as dist

sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
print(f"group_left={dist.is_initialized()}")
