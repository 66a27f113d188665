"""A step of DistilGPT2 under DistributedDataParallel, with its all-reduces and without (no_sync): what the first takes
longer is the exposed all-reduce. DistributedDataParallel's copies of all gradients to its buckets and back are part of
that, whatever the transport: a third step, whose hook sends nothing (c10d's noop_hook), shows them. Weights and tokens
are random; the optimiser, which sends nothing, is left out. On a GPU the products are in bf16, and by algorithms whose
results do not depend on timing.
"""

import contextlib
import hashlib
import time

import torch
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
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


def step(model, tokens, has_buckets):
    """Forward and backward; DistributedDataParallel fills its buckets meanwhile and empties them, or not."""
    model.zero_grad(set_to_none=True)
    mixed = torch.autocast("cuda", torch.bfloat16) if tokens.is_cuda else contextlib.nullcontext()
    with contextlib.nullcontext() if has_buckets else model.no_sync():
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
    model, unsent = (DistributedDataParallel(new_model(settings).to(group.device)) for _ in range(2))
    unsent.register_comm_hook(None, noop_hook)
    steps = (
        ("step without its all-reduces", model, False, 0),
        ("step whose buckets are not sent", unsent, True, 0),
        ("step", model, True, sum(one.numel() * one.element_size() for one in model.parameters())),
    )
    torch.manual_seed(100 + group.rank)
    tokens = torch.randint(settings["vocabulary"], (settings["batch"], settings["length"])).to(group.device)
    for number in range(settings["warm_up"] + settings["steps"]):
        for quantity, stepped, has_buckets, sent_bytes in steps:
            group.barrier()
            begin = time.perf_counter()
            step(stepped, tokens, has_buckets)
            group.synchronize()
            if number >= settings["warm_up"]:
                samples.add(seconds_since(begin), quantity)
            group.reduced_bytes += sent_bytes
    return digest_of(model)
