"""Kills ranks of an elastic training, and counts what that costs: time, steps done again, samples lost.

For each transport one run of ddp_train (--model tiny unless said) with a checkpoint each --checkpoint-every steps.
--kill RANK@STEP,...: rank RANK of those that are there is killed (SIGKILL) once step STEP is recorded. Prints a table
of the restarts, in Markdown, and how often each sample was used in a step that counts. What follows "--" goes to
ddp_train.
"""

import argparse
import collections
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from gloo_bypass_tools.common.argument_types import names_of
from gloo_bypass_tools.common.processes import Child
from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.study.commands import flags, model_flags
from gloo_bypass_tools.study.printed import markdown, trainer
from gloo_bypass_tools.study.transports import DISTINCT, kind_of

TITLE = "What a killed rank costs an elastic training"
POLL_S = 0.005
OF_THE_STUDY = {
    "--elastic": "--min and --ranks set it",
    "--steps": "it is an option of the study",
    "--checkpoint": "the study sets it",
    "--checkpoint-every": "it is an option of the study",
    "--metrics": "the study reads them",
    "--log-samples": "the study reads them",
}
HEADER = ("", "ranks left", "until all had ended", "until the new group trained", "steps again", "lost in all")


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
            entries = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        found |= {int(entry[5:]): int(child) for entry in entries if entry.startswith(b"RANK=")}
    return found


def records_of(path):
    return trainer.records_of(path.read_text()) if path.exists() else []


def has_come_to(step, restarts, records):
    """Whether so many restarts are over, and this step is recorded."""
    over = sum(record["event"] == "restart" for record in records) >= restarts
    return over and any(record["event"] == "step" and record["step"] >= step for record in records)


def kill_in_turn(program, given, metrics, end):
    for restarts, (rank, step) in enumerate(given.kill):
        while program.poll() is None and not has_come_to(step, restarts, records_of(metrics)):
            if time.monotonic() >= end:
                raise RuntimeError(f"no step {step} within {given.timeout} s (--timeout)")
            time.sleep(POLL_S)
        ranks = rank_processes(program.pid) if program.poll() is None else {}
        if rank not in ranks:
            raise RuntimeError(f"there was no rank {rank} to kill after step {step}")
        os.kill(ranks[rank], signal.SIGKILL)


def train(given, transport, folder):
    """(records of the metrics, of the samples)."""
    metrics, samples = folder / "metrics.jsonl", folder / "samples.jsonl"
    words = [
        given.build / "trainer/ddp_train",
        *model_flags(given.flags),
        *flags(elastic=f"{given.min}:{given.ranks}", steps=given.steps, checkpoint=folder / "checkpoint"),
        *flags(checkpoint_every=given.checkpoint_every, metrics=metrics, log_samples=samples, no_progress=True),
        *given.flags,
    ]
    program = Child(
        [str(word) for word in words],
        env=trainer.environment(GLOO_DEVICE_TRANSPORT=kind_of(transport)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + given.timeout
    try:
        kill_in_turn(program, given, metrics, end)
        said = program.communicate(timeout=max(1.0, end - time.monotonic()))[1]
    finally:
        if program.poll() is None:
            program.terminate()
            program.communicate()
    if program.returncode:
        raise RuntimeError(trainer.reason_of(program.returncode, said))
    return records_of(metrics), records_of(samples)


def uses_of(lines):
    """How often each (epoch, sample) was used in steps that count: of each step, those of the last generation."""
    last = collections.defaultdict(int)
    for line in lines:
        last[line["step"]] = max(last[line["step"]], line["generation"])
    counting = [line for line in lines if line["generation"] == last[line["step"]]]
    return collections.Counter((line["epoch"], sample) for line in counting for sample in line["samples"])


def rows(transport, records, samples):
    """A table's rows, one a restart, and a line on the samples."""
    of_steps = [record for record in records if record["event"] == "step"]
    steps = {(record.get("generation", 0), record["step"]): record["t_step_s"] for record in of_steps}
    found = []
    for record in (one for one in records if one["event"] == "restart"):
        generation, repeated = record.get("generation", 0), record["repeated_steps"]
        again_s = sum(steps.get((generation, record["step"] + 1 + i), 0) for i in range(repeated))
        ended, started, lost = (record[f"{name}_seconds"] for name in ("end", "start", "lost"))
        times = (f"{ended:.2f} s", f"{started:.2f} s", f"{repeated} in {again_s:.2f} s", f"{lost + again_s:.2f} s")
        found.append((transport, record["world_size"], *times))
    uses = uses_of(samples)
    wanted = sum(len(line["samples"]) for line in samples if line["generation"] == 0 and line["step"] == 1)
    counted = len({line["step"] for line in samples})
    lost, twice = counted * wanted - sum(uses.values()), sum(count - 1 for count in uses.values())
    return found, f"{transport}: {counted} steps of {wanted} samples; lost {lost}, used twice in an epoch {twice}"


def add_options(options):
    add = options.parser.add_argument
    add("--ranks", type=int, default=4)
    add("--min", type=int, default=2, help="ranks below which the run ends (default 2)")
    add("--steps", type=int, default=60)
    add("--checkpoint-every", type=int, default=10, metavar="STEPS")
    add("--kill", type=kills_of, default=kills_of("1@17,2@38"), metavar="RANK@STEP,...")
    add("--transports", type=names_of(DISTINCT), default=list(DISTINCT[:2]), metavar="A,B")
    add("--timeout", type=int, default=600, metavar="S", help="of a run")
    add("--build", type=Path, default=ROOT / "build", metavar="DIR")


def problem_of(given):
    if problem := trainer.problem_of(given.flags, OF_THE_STUDY):
        return problem
    rank, step = given.kill[-1]
    return f"--kill {rank}@{step}: the run has {given.steps} steps" if step >= given.steps else ""


def run(given):
    listed, audits = [], []
    for transport in given.transports:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found, audit = rows(transport, *train(given, transport, Path(folder)))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                raise RuntimeError(f"{transport}: {error}") from error
        listed += found
        audits.append(audit)
    print(markdown.table(HEADER, listed, left=1), "", *audits, sep="\n")
