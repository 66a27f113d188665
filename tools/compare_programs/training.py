"""A step of DistilGPT2 under DistributedDataParallel, with its all-reduces and without (no_sync): what the first takes
longer is the exposed all-reduce. Weights and tokens are random; the optimiser, which sends nothing, is left out. On a
GPU the products are in bf16, and by algorithms whose results do not depend on timing.
"""

import contextlib
import hashlib
import time

import torch
from torch.nn.parallel import DistributedDataParallel
from transformers import GPT2Config, GPT2LMHeadModel

from gloo_bypass_tools.compare_programs.measuring import bytes_of, seconds_since


def new_model(settings):
    torch.manual_seed(1)
    return GPT2LMHeadModel(
        GPT2Config(
            n_layer=settings["layers"],
            n_head=settings["heads"],
            n_embd=settings["hidden"],
            vocab_size=settings["vocabulary"],
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
        )
    )


def step(model, tokens, reduces):
    """Forward and backward; DistributedDataParallel reduces the gradients meanwhile, or not."""
    model.zero_grad(set_to_none=True)
    mixed = torch.autocast("cuda", torch.bfloat16) if tokens.is_cuda else contextlib.nullcontext()
    with contextlib.nullcontext() if reduces else model.no_sync():
        with mixed:
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()


def digest_of(model):
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(bytes_of(parameter.grad.cpu().contiguous()))
    return digest.hexdigest()


def measure(group, settings, samples):
    """Returns a digest of the averaged gradients, which is the same over every transport."""
    if group.device.type == "cuda":
        torch.use_deterministic_algorithms(True)
    model = DistributedDataParallel(new_model(settings).to(group.device))
    torch.manual_seed(100 + group.rank)
    tokens = torch.randint(settings["vocabulary"], (settings["batch"], settings["length"])).to(group.device)
    gradient_bytes = sum(one.numel() * one.element_size() for one in model.parameters())
    for number in range(settings["warm_up"] + settings["steps"]):
        for reduces in (False, True):
            group.barrier()
            begin = time.perf_counter()
            step(model, tokens, reduces)
            group.synchronize()
            if number >= settings["warm_up"]:
                samples.add(seconds_since(begin), "step" if reduces else "step without its all-reduces")
            group.reduced_bytes += gradient_bytes if reduces else 0
    return digest_of(model)
