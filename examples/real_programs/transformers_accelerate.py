#!/usr/bin/env python3
"""Trains a small GPT-2 of Hugging Face transformers on CPUs with accelerate, from random weights.

python3 -m torch.distributed.run --standalone --nproc_per_node 2 examples/real_programs/transformers_accelerate.py
"""

import argparse
import hashlib

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup


def digest_of(model):
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def texts(count, length, words):
    """Sentences that count: each word determines the next, so that there is something to learn."""
    starts = torch.randint(words, (count, 1), generator=torch.Generator().manual_seed(2))
    tokens = (starts + torch.arange(length)) % words
    return [{"input_ids": row, "labels": row} for row in tokens]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=2, help="passes over the data (2)")
    parser.add_argument("--batch", type=int, default=4, help="sentences of each rank in a step (4)")
    options = parser.parse_args()

    accelerator = Accelerator(cpu=True)
    set_seed(1)
    config = GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = DataLoader(texts(64, 32, 256), batch_size=options.batch, shuffle=True)
    scheduler = get_linear_schedule_with_warmup(optimizer, 2, len(loader) * options.epochs)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    steps = 0
    model.train()
    for epoch in range(options.epochs):
        for batch in loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            steps += 1
        mean = accelerator.gather(loss.detach().reshape(1)).mean().item()
        accelerator.print(f"epoch {epoch}: loss {mean:.6f}")

    # One write a line: the launcher mixes the ranks' output.
    print(
        f"rank={accelerator.process_index} of {accelerator.num_processes} steps={steps} "
        f"parameters={digest_of(accelerator.unwrap_model(model))}\n",
        end="",
        flush=True,
    )
    # No end_training: it destroys the process group, and with that a rank over TCP once did not end.


if __name__ == "__main__":
    main()
