#!/usr/bin/env python3
"""How long a training step of DistilGPT2 takes over each transport, and how much of it waits for the all-reduce.

Needs PyTorch from pip with the package gloo_bypass, and transformers:

    torchrun --nproc_per_node 2 tests/bench/gpt2_step.py --transports TCP,DPDK,UDP

Each rank has a model and a DistributedDataParallel for each transport. Rounds go through the transports in turn, with
one step that reduces its gradients and one that does not (`no_sync`): what the first takes longer is the exposed
all-reduce. Gradients are compared after each round: they must be equal over all transports. The optimiser is left
out.
"""
import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import GPT2Config, GPT2LMHeadModel

CONFIG = {"n_layer": 6, "n_head": 12, "n_embd": 768, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}  # distilgpt2


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transports", default="TCP,DPDK", help="as GLOO_DEVICE_TRANSPORT has them, by commas")
    parser.add_argument("--rounds", type=int, default=15, help="measured ones")
    parser.add_argument("--warm-up", type=int, default=3, help="rounds before them")
    parser.add_argument("--batch", type=int, default=1, help="sequences a rank and step")
    parser.add_argument("--length", type=int, default=128, help="tokens a sequence")
    options = parser.parse_args()
    if min(options.rounds, options.batch) < 1 or options.warm_up < 0 or not 2 <= options.length <= 1024:
        parser.error("--rounds and --batch begin at 1, --warm-up at 0; --length is 2 to 1024")
    return options


def group_over(transport):
    """PyTorch reads the variable whenever it makes a group's device."""
    os.environ["GLOO_DEVICE_TRANSPORT"] = transport
    return dist.new_group(backend="gloo")


def step_seconds(model, tokens, reduces):
    model.zero_grad(set_to_none=True)
    dist.barrier()
    begin = time.perf_counter()
    if reduces:
        model(input_ids=tokens, labels=tokens).loss.backward()
    else:
        with model.no_sync():
            model(input_ids=tokens, labels=tokens).loss.backward()
    return time.perf_counter() - begin


def gradient_sum(model):
    return sum(parameter.grad.double().abs().sum().item() for parameter in model.parameters())


def high(values):
    return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]


def main():
    options = parsed()
    transports = options.transports.split(",")
    if any(transport != "TCP" for transport in transports):
        import gloo_bypass  # noqa: F401  the first group is made over TCP, so that PyTorch does not import it
    os.environ["GLOO_DEVICE_TRANSPORT"] = "TCP"
    dist.init_process_group("gloo")
    models = {}
    for transport in transports:
        torch.manual_seed(1)
        models[transport] = DistributedDataParallel(GPT2LMHeadModel(GPT2Config(**CONFIG)),
                                                    process_group=group_over(transport))
    torch.manual_seed(100 + dist.get_rank())
    tokens = torch.randint(CONFIG.get("vocab_size", 50257), (options.batch, options.length))
    seconds = {(transport, reduces): [] for transport in transports for reduces in (True, False)}
    for turn in range(options.warm_up + options.rounds):
        sums = set()
        for transport, model in models.items():
            for reduces in (False, True):
                taken = step_seconds(model, tokens, reduces)
                if turn >= options.warm_up:
                    seconds[transport, reduces].append(taken)
            sums.add(gradient_sum(model))
        if len(sums) != 1:
            sys.exit(f"gradients differ between {', '.join(transports)}: {sums}")
    if dist.get_rank() == 0:
        for transport in transports:
            step, alone = (statistics.median(seconds[transport, reduces]) for reduces in (True, False))
            print(json.dumps({
                "torch": torch.__version__, "transport": transport, "ranks": dist.get_world_size(),
                "batch": options.batch, "length": options.length, "rounds": options.rounds,
                "step_s": round(step, 4), "step_p99_s": round(high(seconds[transport, True]), 4),
                "without_reduction_s": round(alone, 4), "exposed_s": round(step - alone, 4)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
