"""Runs the example named by its second argument, after making a device over the transport named by its first. PyTorch
keeps that transport, whatever GLOO_DEVICE_TRANSPORT says later."""

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
