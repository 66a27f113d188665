#!/usr/bin/python3
"""Trains the tiny model on passages in plain Python, all ranks' samples as one batch, and compares every loss.

A step's loss is the mean over the tokens that count, on whichever rank and in whichever micro-batch, in fp64. Passages
are padded, packed, or packed into shards; each rank then reads its own shards.

usage: PYTHONPATH=tests/trainer passages_reference.py DDP_TRAIN SAMPLE_TEXT; TOKENISE names the other program
"""

import os
import random
import subprocess
import sys
import tempfile

import reference_run as base  # exits with 77 where torch is missing
import torch

STEPS, BATCH, RATE, TOLERANCE = 7, 2, 3e-3, 1e-9
WAYS = (
    "--spawn 2",
    "--spawn 3 --accumulate 2",
    "--spawn 2 --accumulate 3 --zero 3",
    "--no-ddp",
    "--spawn 2 --clip-norm 0.5",
    "--spawn 3 --tail weighted --samples 17",
    "--spawn 2 --pack",
    "--spawn 3 --accumulate 2 --pack --tail weighted",
    "--spawn 2 --stream-shards",
    "--spawn 3 --accumulate 2 --stream-shards",
    "--no-ddp --stream-shards",
)
END_OF_TEXT, SHARD_TOKENS = 256, 100


def text_and_passages(folder):
    """Lines of all lengths, some blank, two of one token, and wrapped paragraphs of them."""
    draw = random.Random(5)
    lines = ["".join(draw.choices("abc de", k=draw.choice((2, 5, 9, 16, 17, 18, 40)))).strip() for _ in range(40)]
    lines[7:7] = ["", "x", "  ", " y \r"]
    path = folder + "/text"
    with open(path, "w", newline="") as file:
        file.write("\n".join(lines))
    return path, [line.strip() for line in lines if line.strip()]


def sample_of(passage):
    ids = base.byte_ids(passage.encode())[: base.LENGTH + 1]
    inputs, targets = torch.zeros(base.LENGTH, dtype=torch.long), torch.full((base.LENGTH,), -100)
    inputs[: len(ids) - 1] = ids[:-1]
    targets[: len(ids) - 1] = ids[1:]
    return inputs, targets


def packed(passages, cuts=()):
    """Samples of one row, or of each part between `cuts`."""
    row = torch.cat([torch.cat([base.byte_ids(passage.encode()), torch.tensor([END_OF_TEXT])]) for passage in passages])
    return [
        [
            (part[i : i + base.LENGTH], part[i + 1 : i + base.LENGTH + 1])
            for i in range(0, len(part) - base.LENGTH, base.LENGTH)
        ]
        for part in torch.tensor_split(row, cuts)
    ]


def streamed(passages, ranks, epoch):
    """An epoch's samples: rank r has the r-th, the (r + ranks)-th and so on."""
    tokens = sum(len(passage) + 1 for passage in passages)
    shards = [shard for shard in packed(passages, list(range(SHARD_TOKENS, tokens, SHARD_TOKENS))) if shard]
    each = sum(sorted(map(len, shards))[: len(shards) // ranks])
    order = torch.randperm(len(shards), generator=torch.Generator().manual_seed(base.SEED + epoch)).tolist()
    queues = [[sample for i in order[rank::ranks] for sample in shards[i]][:each] for rank in range(ranks)]
    return [sample for together in zip(*queues) for sample in together]


def shuffled(samples, epoch):
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(base.SEED + epoch)).tolist()
    return [samples[i] for i in order]


def value(flags, name, default):
    words = flags.split()
    return int(words[words.index(name) + 1]) if name in words else default


def check(program, path, weights_path, passages, flags):
    text = f"--data {path}.shards" if "--stream-shards" in flags else f"--data {path} --passages lines"
    common = f"--samples 0 --batch-size {BATCH} --lr {RATE} --weights {weights_path}"
    steps = base.steps_of(program, STEPS, text, common, flags)
    parameters, optimizer = base.adamw(base.read_safetensors(weights_path), RATE)
    ranks = value(flags, "--spawn", 1)
    samples = (
        packed(passages)[0]
        if "--pack" in flags
        else streamed(passages, ranks, 0)
        if "--stream-shards" in flags
        else [sample_of(passage) for passage in passages if len(passage) > 1]
    )
    samples = samples[: value(flags, "--samples", len(samples))]
    size = BATCH * ranks * value(flags, "--accumulate", 1)
    epoch_steps = -(-len(samples) // size) if "weighted" in flags else len(samples) // size
    for number, record in enumerate(steps):
        epoch, position = divmod(number, epoch_steps)
        order = streamed(passages, ranks, epoch) if "--stream-shards" in flags else shuffled(samples, epoch)
        batch = order[position * size : (position + 1) * size]
        inputs, targets = (torch.stack(part) for part in zip(*batch))
        expected = base.loss_of(parameters, inputs, targets)
        loss = record["loss"] if "--no-ddp" in flags else record["loss_mean"]
        assert abs(loss - expected.item()) < TOLERANCE, f"{flags}, step {number + 1}: {loss}, reference {expected}"
        counted = (targets >= 0).sum().item()
        assert record["tokens"] == counted, record
        padding = 100 * (1 - counted / targets.numel())
        assert abs(record.get("padding", 0) - padding) < 1e-9, record
        optimizer.zero_grad()
        expected.backward()
        if "--clip-norm" in flags:
            torch.nn.utils.clip_grad_norm_(parameters.values(), 0.5)
        optimizer.step()
    print(f"{flags}: {STEPS} losses within {TOLERANCE} of the reference, at last {loss:.6f}, {padding:.0f} % padding")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        weights = base.save_initial(program, folder)
        path, passages = text_and_passages(folder)
        flags = f"--passages lines --shard-tokens {SHARD_TOKENS} --output {path}.shards"
        subprocess.run([os.environ["TOKENISE"], path, *flags.split()], check=True)
        for flags in WAYS:
            check(program, path, weights, passages, flags)


if __name__ == "__main__":
    main()
