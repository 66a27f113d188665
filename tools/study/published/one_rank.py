"""A program: a step of a model of DistilGPT2's size with PyTorch's DDP over Gloo, of one rank, and without DDP, in
turn. Writes {"plain_s": [...], "ddp_s": [...]}: seconds of each step.

    one_rank.py STEPS FILE

8 samples of 64 tokens a step, float32, CPU: forward, backward, and Adam's step.
"""

import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

LAYERS, HIDDEN, HEADS, VOCABULARY = 6, 768, 12, 50257
BATCH, LENGTH = 8, 64


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, HIDDEN)
        layer = torch.nn.TransformerEncoderLayer(HIDDEN, HEADS, 4 * HIDDEN, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, LAYERS)
        self.head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        """tokens: (batch, length), int64, CPU. Logits: (batch, length, vocabulary), float32."""
        mask = torch.triu(torch.full((tokens.shape[1],) * 2, float("-inf")), diagonal=1)
        return self.head(self.layers(self.embedding(tokens), mask))


def step(model, optimizer, tokens):
    began = time.perf_counter()
    logits = model(tokens[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return time.perf_counter() - began


def main(steps, path):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    torch.manual_seed(1)
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))
    models = {"plain_s": Model(), "ddp_s": DistributedDataParallel(Model())}
    optimizers = {name: torch.optim.Adam(model.parameters()) for name, model in models.items()}
    times = {name: [] for name in models}
    for at in range(steps + 1):
        for name, model in models.items():
            took = step(model, optimizers[name], tokens)
            if at > 0:  # the first one allocates
                times[name].append(took)
    Path(path).write_text(json.dumps(times), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
