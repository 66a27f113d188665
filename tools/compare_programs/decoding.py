"""Tensor-parallel decoding: a decoder shaped like GPT makes one token after the other; the ranks share its heads and
hidden units. Each layer reduces twice a token. Weights are random, the last layer's output is the next input: what
counts is how long products and reductions take.
"""

import hashlib
import time

import torch
import torch.nn.functional as functional

from gloo_bypass_tools.compare_programs.measuring import bytes_of, seconds_since
from gloo_bypass_tools.compare_programs.meeting import Meeting

HEAD = 64
SCALE = 0.02


def number_type():
    """The type that inference uses, if this PyTorch's Gloo can reduce it."""
    return torch.bfloat16 if int(torch.__version__.split(".")[0]) >= 2 else torch.float32


class Layer:
    """This rank's part of a layer: some of the heads, and of the hidden units between them."""

    def __init__(self, group, settings, dtype):
        hidden, part = settings["hidden"], settings["hidden"] // group.size
        self.qkv = torch.randn(3 * part, hidden).mul_(SCALE).to(dtype)
        self.out = torch.randn(hidden, part).mul_(SCALE).to(dtype)
        self.up = torch.randn(4 * part, hidden).mul_(SCALE).to(dtype)
        self.down = torch.randn(hidden, 4 * part).mul_(SCALE).to(dtype)
        cache = settings["batch"], part // HEAD, settings["tokens"], HEAD
        self.keys, self.values = torch.zeros(cache, dtype=dtype), torch.zeros(cache, dtype=dtype)

    def attend(self, x, position):
        """(batch, hidden) -> (batch, this rank's part): over the tokens so far."""
        batch, heads = self.keys.shape[:2]
        query, key, value = functional.linear(x, self.qkv).view(batch, 3, heads, HEAD).unbind(1)
        self.keys[:, :, position], self.values[:, :, position] = key, value
        scores = query.unsqueeze(2) @ self.keys[:, :, : position + 1].transpose(2, 3) / HEAD**0.5
        return (scores.softmax(-1) @ self.values[:, :, : position + 1]).reshape(batch, heads * HEAD)

    def forward(self, x, position, reduce):
        norm = x.shape[-1:]
        x = x + reduce(functional.linear(self.attend(functional.layer_norm(x, norm), position), self.out))
        between = functional.gelu(functional.linear(functional.layer_norm(x, norm), self.up))
        return x + reduce(functional.linear(between, self.down))


def decode(layers, x, tokens, reduce, times):
    """`x`: (batch, hidden), the first input. The last output; appends seconds a token."""
    for position in range(tokens):
        begin = time.perf_counter()
        for layer in layers:
            x = layer.forward(x, position, reduce)
        x = functional.layer_norm(x, x.shape[-1:])
        times.append(seconds_since(begin))
    return x


@torch.no_grad()
def measure(group, settings, samples):
    """Returns a digest of the output, which is the same over every transport."""
    dtype = number_type()
    torch.manual_seed(7 + group.rank)
    layers = [Layer(group, settings, dtype) for _ in range(settings["layers"])]
    first = torch.randn(settings["batch"], settings["hidden"], generator=torch.Generator().manual_seed(3)).to(dtype)

    def reduced(tensor):
        group.all_reduce(tensor)
        return tensor

    with Meeting(group) as meeting:

        def met(tensor):
            meeting.meet()
            return tensor

        ways = {
            "token": reduced,
            "token whose ranks only wait for each other": met,
            "token without its all-reduces": lambda tensor: tensor,
        }
        return decoded_in(ways, group, layers, first, settings, samples)


def decoded_in(ways, group, layers, first, settings, samples):
    """Tokens in each of the ways, by their quantities: what takes the place of an all-reduce."""
    digests = set()
    for repeat in range(settings["repeats"] + 1):
        for quantity, reduce in ways.items():
            times = []
            group.barrier()
            output = decode(layers, first, settings["tokens"], reduce, times)
            if quantity == "token":
                digests.add(hashlib.sha256(bytes_of(output)).hexdigest())
            for one in times if repeat > 0 else ():
                samples.add(one, quantity)
    if len(digests) != 1:
        raise RuntimeError(f"the same decoding had {len(digests)} different outcomes")
    return digests.pop()
