"""The package's answers before, while and after this process uses DPDK, and in processes forked from it. Prints
name=value lines."""

import json
import os

import gloo_bypass
import torch
import torch.distributed as dist


def in_child(question):
    """The result of `question` in a forked child, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(question()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def add_over_dpdk():
    dist.init_process_group("gloo")
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    return tensor[0].item()


print(f"stats_before={gloo_bypass.stats()}")
print(f"before={gloo_bypass.available()['DPDK'].available}")
# It has started nothing here, so a child may start its own.
print(f"child_sum={in_child(add_over_dpdk)}")
os.environ["MASTER_PORT"] = os.environ["SECOND_PORT"]
print(f"sum={add_over_dpdk()}")
print(f"while={gloo_bypass.available()['DPDK'].available}")
print(f"in_child={in_child(lambda: gloo_bypass.available()['DPDK'])}")
stats = gloo_bypass.stats()
print(f"transports={sorted(stats)}")
print(f"stats={json.dumps(stats['DPDK'])}")
dist.destroy_process_group()
