#!/usr/bin/env python3
"""Decoding with PyTorch's own tensor parallelism: the ranks share each layer's heads and hidden units, and reduce twice
a layer and token; checked against the whole decoder.

    GLOO_DEVICE_TRANSPORT=DPDK python3 -m torch.distributed.run --nproc_per_node 2 examples/tensor_parallel.py
    ... examples/tensor_parallel.py --backend bypass --without-all-reduces        our own collectives, and the bound

Debian's PyTorch needs some options more: see docs/pytorch.md.

The decoder is shaped like Llama: RMS norms, rotary embedding, SwiGLU. Its weights are random, so what it says means
nothing; how long products and all-reduces take does. A token of the default size takes 16 all-reduces of 2 KiB.

Two ranks on two cores of a Xeon, PyTorch 2.13, runs in turn: 21 to 22 tokens/s over TCP, 28 to 29 over DPDK with Gloo's
collectives and 39 to 43 with ours: as many as where all-reduces do nothing. The rate without them, 54 to 66, is out of
reach: DTensor dispatches in Python, and does more of it where something is to be reduced.

Needs a PyTorch with tensor parallelism on CPUs: 2.6 has it, 1.13 does not (exit status 77, which test drivers read as
skipped).
"""

import argparse
import os
import sys
import time

import gloo_bypass  # decoding needs no more of this project; the check at the end does
import torch
import torch.distributed as dist
import torch.distributed.nn  # noqa: F401  before the group, which it would keep beyond its end (docs/pytorch.md)
import torch.nn.functional as functional

HAS_TENSOR_PARALLEL = tuple(int(word) for word in torch.__version__.split(".")[:2]) >= (2, 6)
if HAS_TENSOR_PARALLEL:  # before the group, for the same reason
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

NOT_IN_THIS_RELEASE = 77
HEAD = 64  # numbers of a head
VOCABULARY = 512
CHECKED_TOKENS = 8


class Norm(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


def rotated(x, position):
    """Rotary embedding of queries or keys (batch, heads, HEAD) at a position."""
    angles = position * 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Attention(torch.nn.Module):
    """Of one new token over those so far. Knows the heads that it has from what its projections return."""

    def __init__(self, hidden, tokens):
        super().__init__()
        self.q, self.k, self.v, self.o = (torch.nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self.tokens, self.keys, self.values = tokens, None, None

    def forward(self, x, position):
        query, key, value = (part(x).view(len(x), -1, HEAD) for part in (self.q, self.k, self.v))
        query, key = rotated(query, position), rotated(key, position)
        if self.keys is None:
            self.keys, self.values = (torch.zeros(len(x), key.shape[1], self.tokens, HEAD) for _ in range(2))
        self.keys[:, :, position], self.values[:, :, position] = key, value
        keys, values = self.keys[:, :, : position + 1], self.values[:, :, : position + 1]
        return self.o(functional.scaled_dot_product_attention(query.unsqueeze(2), keys, values).flatten(1))


class FeedForward(torch.nn.Module):
    def __init__(self, hidden, between):
        super().__init__()
        self.gate, self.up = (torch.nn.Linear(hidden, between, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(between, hidden, bias=False)

    def forward(self, x):
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Layer(torch.nn.Module):
    def __init__(self, hidden, tokens):
        super().__init__()
        self.attention, self.feed_forward = Attention(hidden, tokens), FeedForward(hidden, 3 * hidden)
        self.before_attention, self.before_feed_forward = Norm(hidden), Norm(hidden)

    def forward(self, x, position):
        x = x + self.attention(self.before_attention(x), position)
        return x + self.feed_forward(self.before_feed_forward(x))


class Decoder(torch.nn.Module):
    def __init__(self, layers, hidden, tokens):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, hidden)
        self.layers = torch.nn.ModuleList(Layer(hidden, tokens) for _ in range(layers))
        self.norm, self.head = Norm(hidden), torch.nn.Linear(hidden, VOCABULARY, bias=False)

    def forward(self, token, position):
        """Logits for the next token of each sequence, from this one."""
        x = self.embedding(token)
        for layer in self.layers:
            x = layer(x, position)
        return self.head(self.norm(x))


def new_decoder(options):
    torch.manual_seed(5)  # the same on all ranks
    return Decoder(options.layers, options.hidden, options.tokens)


def share(decoder, mesh, reduces=True):
    """The ranks of the mesh share the decoder, as PyTorch's tutorial on tensor parallelism has it. Not `reduces`: each
    goes on with its own part of the sums, which are wrong then and cost nothing."""
    columns, rows = ColwiseParallel(), RowwiseParallel(output_layouts=Replicate() if reduces else Partial())
    plan = {f"attention.{name}": columns for name in "qkv"} | {"attention.o": rows}
    plan |= {f"feed_forward.{name}": columns for name in ("gate", "up")} | {"feed_forward.down": rows}
    for layer in decoder.layers:
        parallelize_module(layer, mesh, plan)
    return decoder


def decode(decoder, batch, tokens):
    """The most likely token each time. Logits of the last one, the sequences, and seconds."""
    sequences = [torch.arange(batch) % VOCABULARY]
    dist.barrier()
    begin = time.perf_counter()
    for position in range(tokens):
        logits = decoder(sequences[-1], position)
        sequences.append(logits.argmax(-1))
    return logits, torch.stack(sequences, 1), time.perf_counter() - begin


def tokens_per_second(decoder, options):
    """Of each sequence; the first few tokens, where memory is cold, do not count."""
    decode(decoder, options.batch, min(4, options.tokens))
    seconds = min(decode(decoder, options.batch, options.tokens)[2] for _ in range(options.rounds))
    return options.tokens / seconds


def kept_by_this_rank(module):
    """How many of the parameters' numbers are here."""
    local = (one.to_local() if isinstance(one, DTensor) else one for one in module.parameters())
    return sum(one.numel() for one in local)


def check(shared, options):
    """The whole decoder, on this rank alone, says the same to the same tokens."""
    tokens = min(CHECKED_TOKENS, options.tokens)
    logits, sequences, _ = decode(shared, options.batch, tokens)
    whole = new_decoder(options)
    for position in range(tokens):
        expected = whole(sequences[:, position], position)
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-4)
    return logits, sum(one.numel() for one in whole.parameters())


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="gloo", choices=("gloo", "bypass"), help="of torch.distributed (gloo)")
    parser.add_argument("--layers", type=int, default=8, help="layers of the decoder (8)")
    parser.add_argument("--hidden", type=int, default=512, help=f"hidden units, in heads of {HEAD} (512)")
    parser.add_argument("--tokens", type=int, default=32, help="tokens of each sequence (32)")
    parser.add_argument("--batch", type=int, default=1, help="sequences at a time (1)")
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many counts (3)")
    parser.add_argument("--without-all-reduces", action="store_true", help="the rate without them too: what bounds it")
    return parser.parse_args()


@torch.no_grad()
def main():
    options = parse()
    if not HAS_TENSOR_PARALLEL:
        print(f"not checked: PyTorch {torch.__version__} has no tensor parallelism for CPUs")
        sys.exit(NOT_IN_THIS_RELEASE)
    ours = options.backend == "bypass" or os.environ.get("GLOO_BYPASS_COLLECTIVES") == "own"
    dist.init_process_group(options.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    if options.hidden % (HEAD * size):
        sys.exit(f"tensor_parallel.py: --hidden {options.hidden}: {size} ranks cannot share its heads of {HEAD}")
    mesh = init_device_mesh("cpu", (size,))
    shared = share(new_decoder(options), mesh)
    logits, parameters = check(shared, options)
    rates = f"tokens/s: {tokens_per_second(shared, options):.1f}"
    if options.without_all_reduces:
        alone = share(new_decoder(options), mesh, reduces=False)
        rates += f", {tokens_per_second(alone, options):.1f} without its all-reduces"
    dist.barrier()
    gloo_bypass.require_transport()
    if rank == 0:
        print(f"{rates} (backend {options.backend}, bytes over {', '.join(gloo_bypass.stats()) or 'TCP'})")
        print(f"parameters: {kept_by_this_rank(shared)} of {parameters} on rank 0")
        print(f"sum of the logits: {logits.double().sum().item():.12f}")
        print(f"checked: {size} ranks decode together what one decodes")
    # Over Gloo's TCP, PyTorch 2.6's destroy_process_group hangs now and then if another rank has ended before.
    if ours or gloo_bypass.stats():  # empty over Gloo's TCP
        dist.destroy_process_group()
    # PyTorch's caches of plans for sharded tensors still hold the mesh, and the mesh its group (docs/pytorch.md).
    # Gloo's group then keeps its threads, which abort Python's end now and then; ours has ended them.
    sys.stdout.flush()
    if not ours:
        os._exit(0)


if __name__ == "__main__":
    main()
