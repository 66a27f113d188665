#!/usr/bin/python3
"""Kills ranks of an elastic training, and counts what that costs: time, steps done again, samples lost.

usage: kill_ranks.py [--ranks 4] [--min 2] [--steps 60] [--kill 1@17,2@38] [--transports A,B]
                     [-- FLAG_OF_DDP_TRAIN ...]

--kill RANK@STEP,...: rank RANK of those that are there is killed (SIGKILL) once step STEP is recorded. For each
transport one run of ddp_train (--model tiny unless said) with a checkpoint each --checkpoint-every steps. Prints a
table of the restarts, in Markdown, and how often each sample was used in a step that counts.
"""

import argparse
import collections
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
from gloo_bypass_tools.common.argument_types import names_of, split_at_dashes  # noqa: E402
from gloo_bypass_tools.study.training import model_flags  # noqa: E402
from gloo_bypass_tools.study.transports import SWITCHED, kind_of  # noqa: E402

POLL_S = 0.005


def kills_of(text):
    """[(rank, step)], by step."""
    try:
        kills = [tuple(int(part) for part in one.split("@")) for one in text.split(",")]
        if any(len(kill) != 2 or kill[0] < 0 or kill[1] < 1 for kill in kills):
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no list of RANK@STEP, as 1@17,2@38") from None
    return sorted(kills, key=lambda kill: kill[1])


def rank_processes(launcher):
    """{rank: process id} of the launcher's children."""
    found = {}
    for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        try:
            environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        for entry in environment:
            if entry.startswith(b"RANK="):
                found[int(entry[5:])] = int(child)
    return found


def records_of(path):
    """Of the whole lines so far."""
    return (
        [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        if path.exists()
        else []
    )


def run(options, transport, folder):
    metrics, samples = folder / "metrics.jsonl", folder / "samples.jsonl"
    command = [
        options.build / "trainer/ddp_train",
        *model_flags(options.flags),
        "--elastic",
        f"{options.min}:{options.ranks}",
        "--steps",
        options.steps,
        "--checkpoint",
        folder / "checkpoint",
        "--checkpoint-every",
        options.checkpoint_every,
        "--metrics",
        metrics,
        "--log-samples",
        samples,
        "--no-progress",
        *options.flags,
    ]
    environment = {"OMP_NUM_THREADS": "1"} | os.environ | {"GLOO_DEVICE_TRANSPORT": kind_of(transport)}
    program = subprocess.Popen(
        [str(word) for word in command], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + options.timeout
    try:
        for restarts, (rank, step) in enumerate(options.kill):
            while program.poll() is None:
                if time.monotonic() >= end:
                    raise RuntimeError(f"{transport}: no step {step} within {options.timeout} s (--timeout)")
                records = records_of(metrics)
                if sum(record["event"] == "restart" for record in records) >= restarts and any(
                    record["event"] == "step" and record["step"] >= step for record in records
                ):
                    break
                time.sleep(POLL_S)
            ranks = rank_processes(program.pid) if program.poll() is None else {}
            if rank not in ranks:
                raise RuntimeError(f"{transport}: there was no rank {rank} to kill after step {step}")
            os.kill(ranks[rank], signal.SIGKILL)
        said = program.communicate(timeout=max(1.0, end - time.monotonic()))[1].strip().splitlines()
    finally:
        if program.poll() is None:
            program.terminate()
            program.communicate()
    if program.returncode:
        raise RuntimeError(f"{transport}: {said[-1] if said else f'exit status {program.returncode}'}")
    return records_of(metrics), records_of(samples)


def uses_of(lines):
    """How often each (epoch, sample) was used in steps that count: of each step, those of the last generation."""
    last = collections.defaultdict(int)
    for line in lines:
        last[line["step"]] = max(last[line["step"]], line["generation"])
    return collections.Counter(
        (line["epoch"], sample)
        for line in lines
        if line["generation"] == last[line["step"]]
        for sample in line["samples"]
    )


def rows(transport, records, samples):
    """A table's rows, one a restart, and a line on the samples."""
    steps = {
        (record.get("generation", 0), record["step"]): record["t_step_s"]
        for record in records
        if record["event"] == "step"
    }
    lines = []
    for record in records:
        if record["event"] == "restart":
            repeated = record["repeated_steps"]
            again = sum(steps.get((record.get("generation", 0), record["step"] + 1 + i), 0) for i in range(repeated))
            lines.append(
                f"| {transport} | {record['world_size']} | {record['end_seconds']:.2f} s | "
                f"{record['start_seconds']:.2f} s | {repeated} in {again:.2f} s | "
                f"{record['lost_seconds'] + again:.2f} s |"
            )
    uses = uses_of(samples)
    wanted = sum(len(line["samples"]) for line in samples if line["generation"] == 0 and line["step"] == 1)
    counted = len({line["step"] for line in samples})
    lost, twice = counted * wanted - sum(uses.values()), sum(count - 1 for count in uses.values())
    return lines, f"{transport}: {counted} steps of {wanted} samples; lost {lost}, used twice in an epoch {twice}"


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--min", type=int, default=2, help="ranks below which the run ends (default 2)")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--checkpoint-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--kill", type=kills_of, default=kills_of("1@17,2@38"), metavar="RANK@STEP,...")
    parser.add_argument("--transports", type=names_of(SWITCHED), default=list(SWITCHED[:2]), metavar="A,B")
    parser.add_argument("--timeout", type=int, default=600, metavar="S", help="of a run")
    parser.add_argument("--build", type=Path, default=ROOT / "build", metavar="DIR")
    own, program = split_at_dashes(arguments)
    options = parser.parse_args(own)
    options.flags = program[1:]
    if options.kill[-1][1] >= options.steps:
        parser.error(f"--kill {options.kill[-1][0]}@{options.kill[-1][1]}: the run has {options.steps} steps")
    return options


def main():
    options = options_of(sys.argv[1:])
    table, audits = [], []
    try:
        for transport in options.transports:
            with tempfile.TemporaryDirectory() as folder:
                lines, audit = rows(transport, *run(options, transport, Path(folder)))
            table += lines
            audits.append(audit)
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        print(f"kill_ranks.py: {error}", file=sys.stderr)
        return 1
    print("| | ranks left | until all had ended | until the new group trained | steps again | lost in all |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |", *table, "", *audits, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
