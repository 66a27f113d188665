"""A faulty Python: before a rank's program begins it makes a device over PLANTED_TRANSPORT, and PyTorch keeps that
transport whatever GLOO_DEVICE_TRANSPORT says. Takes -c TEXT and -m MODULE, as Python does."""

import os
import runpy
import sys

flag, what, *arguments = sys.argv[1:]
sys.argv = [flag, *arguments]
if flag == "-c":
    exec(compile(what, "<string>", "exec"))
else:
    import gloo_bypass  # noqa: F401  registers the transports
    import torch.distributed as dist

    named = os.environ["GLOO_DEVICE_TRANSPORT"]
    os.environ["GLOO_DEVICE_TRANSPORT"] = os.environ["PLANTED_TRANSPORT"]
    dist.ProcessGroupGloo.create_default_device()
    os.environ["GLOO_DEVICE_TRANSPORT"] = named
    runpy.run_module(what, run_name="__main__", alter_sys=True)
