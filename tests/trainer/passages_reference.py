#!/usr/bin/python3
"""Trains the tiny model on passages in plain Python, all ranks' samples as one batch, and compares every loss.

A step's loss is the mean over the tokens that count, whichever rank and micro-batch they are of, in fp64.

usage: passages_reference.py DDP_TRAIN SAMPLE_TEXT
"""
import random
import sys
import tempfile

import reference_run as base

try:
    import torch
except ImportError:
    print("skipped: python3-torch is not installed")
    sys.exit(77)

STEPS, BATCH, RATE, TOLERANCE = 7, 2, 3e-3, 1e-9
WAYS = (("--spawn", "2"), ("--spawn", "3", "--accumulate", "2"),
        ("--spawn", "2", "--accumulate", "3", "--zero", "3"), ("--no-ddp",), ("--spawn", "2", "--clip-norm", "0.5"),
        ("--spawn", "3", "--tail", "weighted", "--samples", "17"))


def text_and_passages(folder):
    """Lines of all lengths, some blank, two of one token, and wrapped paragraphs of them."""
    draw = random.Random(5)
    lines = ["".join(draw.choices("abc de", k=draw.choice((2, 5, 9, 16, 17, 18, 40)))).strip() for _ in range(40)]
    lines[7:7] = ["", "x", "  ", " y \r"]
    path = folder + "/text"
    with open(path, "w", newline="") as file:
        file.write("\n".join(lines))
    return path, [line.strip() for line in lines if len(line.strip()) > 1]


def sample_of(passage):
    ids = base.byte_ids(passage.encode())[:base.LENGTH + 1]
    inputs, targets = torch.zeros(base.LENGTH, dtype=torch.long), torch.full((base.LENGTH,), -100)
    inputs[:len(ids) - 1] = ids[:-1]
    targets[:len(ids) - 1] = ids[1:]
    return inputs, targets


def value(flags, name, default):
    return int(flags[flags.index(name) + 1]) if name in flags else default


def check(program, path, weights_path, passages, flags):
    records = base.trainer(program, "--data", path, "--passages", "lines", "--samples", "0", "--batch-size", str(BATCH),
                           "--steps", str(STEPS), "--lr", str(RATE), "--weights", weights_path, *flags)
    steps = [record for record in records if record["event"] == "step"]
    assert len(steps) == STEPS, records
    parameters = base.read_safetensors(weights_path)
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    optimizer = torch.optim.AdamW(parameters.values(), lr=RATE, weight_decay=0.01)
    samples = passages[:value(flags, "--samples", len(passages))]
    size = BATCH * value(flags, "--spawn", 1) * value(flags, "--accumulate", 1)
    epoch_steps = -(-len(samples) // size) if "weighted" in flags else len(samples) // size
    for number, record in enumerate(steps):
        epoch, position = divmod(number, epoch_steps)
        order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(base.SEED + epoch)).tolist()
        batch = [sample_of(samples[i]) for i in order[position * size:(position + 1) * size]]
        inputs, targets = (torch.stack(part) for part in zip(*batch))
        expected = base.loss_of(parameters, inputs, targets)
        loss = record["loss"] if "--no-ddp" in flags else record["loss_mean"]
        assert abs(loss - expected.item()) < TOLERANCE, f"{flags}, step {number + 1}: {loss}, reference {expected}"
        counted = (targets >= 0).sum().item()
        assert record["tokens"] == counted, record
        assert abs(record["padding"] - 100 * (1 - counted / targets.numel())) < 1e-9, record
        optimizer.zero_grad()
        expected.backward()
        if "--clip-norm" in flags:
            torch.nn.utils.clip_grad_norm_(parameters.values(), 0.5)
        optimizer.step()
    print(f"{' '.join(flags)}: {STEPS} losses within {TOLERANCE} of the reference, at last {loss:.6f}, "
          f"{record['padding']:.0f} % padding")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        weights = folder + "/model.safetensors"
        base.trainer(program, "--steps", "1", "--lr", "0", "--batch-size", "1", "--save-model", weights)
        path, passages = text_and_passages(folder)
        for flags in WAYS:
            check(program, path, weights, passages, flags)


if __name__ == "__main__":
    main()
