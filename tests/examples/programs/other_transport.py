"""Runs the example that its second argument names, after it has made a device over the transport that its first
argument names: PyTorch keeps that one, whatever GLOO_DEVICE_TRANSPORT says later, as it did before this program."""

import os
import runpy
import sys

import gloo_bypass  # noqa: F401  registers the transports
import torch.distributed as dist

named = os.environ["GLOO_DEVICE_TRANSPORT"]
os.environ["GLOO_DEVICE_TRANSPORT"] = sys.argv[1]
dist.ProcessGroupGloo.create_default_device()
os.environ["GLOO_DEVICE_TRANSPORT"] = named
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
