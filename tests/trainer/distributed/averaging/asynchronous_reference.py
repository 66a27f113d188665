#!/usr/bin/python3
"""Repeats a run of --average asynchronous in plain Python and compares every loss, in fp64.

The order of arrival differs from run to run. The records give it: for each rank's step, the number of its update, and
the version of the parameters of its gradient. The server's AdamW is computed again in that order, with a checkpoint in
the middle.

usage: PYTHONPATH=tests/trainer asynchronous_reference.py DDP_TRAIN SAMPLE_TEXT
"""

import json
import subprocess
import sys
import tempfile

import averaging_reference as averaging
import reference_run as base

try:
    import torch
except ImportError:
    print("skipped: python3-torch is not installed")
    sys.exit(77)

RANKS, STEPS, SAVED_AT, RATE = 3, 8, 4, 3e-3
TOLERANCE = 1e-9


def pushes_of(program, folder, *flags):
    """Every rank's steps, in the order in which the server applied them."""
    metrics = folder + "/rank{rank}.jsonl"
    subprocess.run(
        [
            program,
            "--model",
            "tiny",
            "--precision",
            "fp64",
            "--seq-length",
            str(base.LENGTH),
            "--samples",
            str(base.SAMPLES),
            "--seed",
            str(base.SEED),
            "--batch-size",
            str(base.BATCH),
            "--spawn",
            str(RANKS),
            "--average",
            "asynchronous",
            "--lr",
            str(RATE),
            "--metrics",
            metrics,
            *flags,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=100,
    )
    pushes = []
    for rank in range(RANKS):
        with open(metrics.format(rank=rank)) as file:
            records = [json.loads(line) for line in file]
        pushes += [{**record, "rank": rank} for record in records if record["event"] == "step"]
    return sorted(pushes, key=lambda push: push["update"])


def check(tokens, weights, pushes, inverse):
    server = {name: value.clone().requires_grad_(True) for name, value in weights.items()}
    optimizer = torch.optim.AdamW(server.values(), lr=RATE, weight_decay=0.01)
    versions = [{name: value.detach().clone() for name, value in server.items()}]
    ranks = [averaging.Rank(weights, number, RANKS) for number in range(RANKS)]
    for number, push in enumerate(pushes, start=1):
        assert push["update"] == number, f"update {number} is missing"
        staleness = number - 1 - push["version"]
        assert push["staleness"] == staleness, push
        rank = ranks[push["rank"]]
        rank.load(versions[push["version"]])
        expected = rank.backward(tokens, push["step"] - 1)
        assert abs(push["loss"] - expected) < TOLERANCE, f"update {number}: {push['loss']}, reference {expected}"
        for name, parameter in server.items():
            parameter.grad = rank.parameters[name].grad
        optimizer.param_groups[0]["lr"] = RATE / max(1, staleness) if inverse else RATE
        optimizer.step()
        versions.append({name: value.detach().clone() for name, value in server.items()})


def main():
    program, text = sys.argv[1:3]
    with open(text, "rb") as file:
        tokens = base.byte_ids(file.read(base.SAMPLES * base.LENGTH + 1))
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/model.safetensors"
        base.trainer(program, "--steps", "1", "--lr", "0", "--batch-size", "1", "--save-model", path)
        weights = base.read_safetensors(path)
        for flags in ((), ("--staleness-penalty", "inverse"), ("--staleness-bound", "0"), ("--staleness-bound", "1")):
            checkpoint = folder + "/c"
            pushes = pushes_of(
                program, folder, "--weights", path, "--steps", str(SAVED_AT), "--checkpoint", checkpoint, *flags
            )
            more = pushes_of(program, folder, "--resume", checkpoint, "--steps", str(STEPS), *flags)
            assert len(pushes) == RANKS * SAVED_AT and len(more) == RANKS * STEPS, "steps are missing"
            pushes += [push for push in more if push["step"] > SAVED_AT]
            check(tokens, weights, pushes, "inverse" in flags)
            if "--staleness-bound" in flags:
                bound = int(flags[1])
                # Another rank may be as many steps behind when the parameters go out, and then come to as many ahead
                # and one more.
                assert max(push["staleness"] for push in pushes) <= (RANKS - 1) * (2 * bound + 1)
            staleness = sum(push["staleness"] for push in pushes) / len(pushes)
            print(
                f"{' '.join(flags) or 'unbounded'}: {len(pushes)} losses within {TOLERANCE} of the reference, "
                f"mean staleness {staleness:.2f}, at last {pushes[-1]['loss']:.6f}"
            )


if __name__ == "__main__":
    main()
