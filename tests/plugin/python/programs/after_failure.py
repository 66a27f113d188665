"""The answer and side effects of available() after a process group that could not be made. Prints one JSON object."""

import json
import os

import gloo_bypass
import torch
import torch.distributed as dist

GOOD_DIRECTORY, METRICS = os.environ["GOOD_DIRECTORY"], os.environ["METRICS_FILE"]


def ask():
    """The answer, and whether the call has started something that counts or exports."""
    if os.path.exists(METRICS):
        os.unlink(METRICS)  # of the attempt that failed
    answer = gloo_bypass.available()["DPDK"]
    return {
        "works": answer.available,
        "text": answer.device + answer.reason,
        "stats": gloo_bypass.stats(),
        "metrics": os.path.exists(METRICS),
    }


result = {}
try:
    dist.init_process_group("gloo")
    result["failure"] = ""
except RuntimeError as error:
    result["failure"] = str(error)
result["still wrong"] = ask()
os.environ["GLOO_BYPASS_MEMIF_DIRECTORY"] = GOOD_DIRECTORY
result["mended"] = ask()
os.environ["MASTER_PORT"] = os.environ["SECOND_PORT"]
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(10))
result["transports"] = sorted(gloo_bypass.stats())
result["metrics in use"] = os.path.exists(METRICS)
print(json.dumps(result))
dist.destroy_process_group()  # or its threads may abort Python's end (tests/plugin/torch/programs/load.py)
