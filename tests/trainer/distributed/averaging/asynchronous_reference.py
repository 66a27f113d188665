#!/usr/bin/python3
"""Repeats a run of --average asynchronous in plain Python and compares every loss, in fp64.

The order of arrival differs from run to run. The records give it: for each rank's step, the number of its update, and
the version of the parameters of its gradient. The server's AdamW is computed again in that order, with a checkpoint in
the middle.

usage: PYTHONPATH=tests/trainer asynchronous_reference.py DDP_TRAIN SAMPLE_TEXT
"""

import json
import math
import sys
import tempfile

import averaging_reference as averaging
import reference_run as base

RANKS, STEPS, SAVED_AT, RATE = 3, 8, 4, 3e-3
TOLERANCE = 1e-9


def pushes_of(program, folder, *flags):
    """Every rank's steps, in the order in which the server applied them."""
    metrics = folder + "/rank{rank}.jsonl"
    common = f"--batch-size {base.BATCH} --spawn {RANKS} --average asynchronous --lr {RATE} --metrics {metrics}"
    base.trainer(program, common, *flags)
    pushes = []
    for rank in range(RANKS):
        with open(metrics.format(rank=rank)) as file:
            records = [json.loads(line) for line in file]
        pushes += [{**record, "rank": rank} for record in records if record["event"] == "step"]
    return sorted(pushes, key=lambda push: push["update"])


PENALTIES = {
    "none": lambda staleness: 1,
    "inverse": lambda staleness: 1 / max(1, staleness),
    "exponential": lambda staleness: math.exp(-0.1 * staleness),
}


def check(tokens, weights, pushes, penalty):
    server, optimizer = base.adamw(weights, RATE)
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
        optimizer.param_groups[0]["lr"] = RATE * penalty(staleness)
        optimizer.step()
        versions.append({name: value.detach().clone() for name, value in server.items()})


def main():
    program, text = sys.argv[1:3]
    tokens = base.tokens_of(text)
    with tempfile.TemporaryDirectory() as folder:
        path = base.save_initial(program, folder)
        weights = base.read_safetensors(path)
        penalties = [f"--staleness-penalty {name}" for name in ("inverse", "exponential")]
        for flags in ("", *penalties, "--staleness-bound 0", "--staleness-bound 1"):
            begin = f"--weights {path} --steps {SAVED_AT} --checkpoint {folder}/c"
            pushes = pushes_of(program, folder, begin, flags)
            more = pushes_of(program, folder, f"--resume {folder}/c --steps {STEPS}", flags)
            assert len(pushes) == RANKS * SAVED_AT and len(more) == RANKS * STEPS, "steps are missing"
            pushes += [push for push in more if push["step"] > SAVED_AT]
            check(tokens, weights, pushes, PENALTIES[flags.split()[1] if "penalty" in flags else "none"])
            if "--staleness-bound" in flags:
                bound = int(flags.split()[1])
                # Another rank may be as many steps behind when the parameters go out, and then come to as many ahead
                # and one more.
                assert max(push["staleness"] for push in pushes) <= (RANKS - 1) * (2 * bound + 1)
            staleness = sum(push["staleness"] for push in pushes) / len(pushes)
            print(
                f"{flags or 'unbounded'}: {len(pushes)} losses within {TOLERANCE} of the reference, "
                f"mean staleness {staleness:.2f}, at last {pushes[-1]['loss']:.6f}"
            )


if __name__ == "__main__":
    main()
