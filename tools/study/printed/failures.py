"""Kills ranks of an elastic training, and counts what that costs: time, steps done again, samples lost.

For each transport a run of ddp_train (--model tiny unless said) with a checkpoint each --checkpoint-every steps, and
--repeats of them, transports in turn. --kill RANK@STEP,...: rank RANK of those that are there is killed (SIGKILL) once
step STEP is recorded. Says first how long it takes. Prints a table of the restarts, in Markdown: each part's time, and
the sum in seconds and in steps. Below it stands how often samples were used in steps that count. --json writes the
stored run, a new file, after each run, and --draw makes the tables of a page (README.md) from those beside it. A run
that fails is said, and the others go on; then the exit status is 1. What follows "--" goes to ddp_train.
"""

import argparse
import collections
import datetime
import os
import signal
import statistics
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

from gloo_bypass_tools.common.argument_types import names_of, number_in, result_file
from gloo_bypass_tools.common.failures import FAILED
from gloo_bypass_tools.common.processes import Child
from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.common.whole_file import write_whole
from gloo_bypass_tools.report import machine, marked_tables, wording
from gloo_bypass_tools.report.lines import show_progress
from gloo_bypass_tools.study import estimates
from gloo_bypass_tools.study.commands import flags, model_flags
from gloo_bypass_tools.study.printed import failure_runs, trainer
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
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"not done within {given.timeout} s (--timeout)") from None
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


def restart_of(record, steps):
    """`steps`: {(generation, step): seconds}"""
    generation, repeated = record.get("generation", 0), record["repeated_steps"]
    again_s = sum(steps.get((generation, record["step"] + 1 + at), 0.0) for at in range(repeated))
    times = (round(record[f"{name}_seconds"], 4) for name in ("end", "start"))
    return failure_runs.Restart(record["world_size"], *times, repeated, round(again_s, 4))


def row_of(transport, records, samples):
    """The stored row of a run; `records` of its metrics."""
    of_steps = [record for record in records if record["event"] == "step"]
    steps = {(record.get("generation", 0), record["step"]): record["t_step_s"] for record in of_steps}
    before = statistics.median(seconds for (generation, _), seconds in steps.items() if generation == 0)
    wanted = sum(len(line["samples"]) for line in samples if line["generation"] == 0 and line["step"] == 1)
    uses, counted = uses_of(samples), len({line["step"] for line in samples})
    lost, twice = counted * wanted - sum(uses.values()), sum(count - 1 for count in uses.values())
    restarts = tuple(restart_of(record, steps) for record in records if record["event"] == "restart")
    return failure_runs.Row(transport, wanted, round(before, 4), lost, twice, restarts)


def estimate_s(given):
    """Of a run; None where it is not known what a step computes."""
    name = trainer.model_of(given.flags, model_flags([]))
    step_s = trainer.computing_s(given.flags, name, given.ranks)
    again = sum(step % given.checkpoint_every for _, step in given.kill)
    return None if step_s is None else (1 + len(given.kill)) * estimates.START_S + (given.steps + again) * step_s


def add_options(options):
    add = options.parser.add_argument
    add("--ranks", type=int, default=4)
    add("--min", type=int, default=2, help="ranks below which the run ends (default 2)")
    add("--steps", type=int, default=60)
    add("--checkpoint-every", type=int, default=10, metavar="STEPS")
    add("--kill", type=kills_of, default=kills_of("1@17,2@38"), metavar="RANK@STEP,...")
    add("--transports", type=names_of(DISTINCT), default=list(DISTINCT[:2]), metavar="A,B")
    add("--repeats", type=number_in(int, 1, 100), default=1, metavar="N", help="runs of each, in turn (default 1)")
    about = f"of a run (default {trainer.PATIENCE:g} times its estimate, at least {trainer.LEAST_LIMIT_S})"
    add("--timeout", type=int, metavar="S", help=about)
    add("--build", type=Path, default=ROOT / "build", metavar="DIR")
    add("--json", type=result_file, metavar="FILE", help="write the stored run, with the machine, into a new file")
    about = f"measure nothing: make the tables of DIR/{marked_tables.PAGE} from DIR/*{marked_tables.RUN}"
    add("--draw", type=Path, metavar="DIR", help=about)


def problem_of(given):
    if given.draw:
        return ""
    if problem := trainer.problem_of(given.flags, OF_THE_STUDY):
        return problem
    if given.json and given.json.is_file():
        return f"--json {given.json}: is there already: choose another file, or move it away"
    rank, step = given.kill[-1]
    return f"--kill {rank}@{step}: the run has {given.steps} steps" if step >= given.steps else ""


def measured(given, transport):
    """The row of a run."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            row = row_of(transport, *train(given, transport, Path(folder)))
        except (RuntimeError, ValueError, ProcessLookupError) as error:
            raise RuntimeError(f"{transport}: {error}") from error
    if len(row.restarts) != len(given.kill):
        raise RuntimeError(f"{transport}: {len(row.restarts)} restarts after {len(given.kill)} kills")
    return row


def stored_run(given, described, others, rows):
    return failure_runs.StoredRun(
        described["commit"],
        datetime.date.fromisoformat(machine.today()),
        machine.stored(described),
        described["load_before"],
        others.cores(),
        *(given.ranks, given.min, given.steps, given.checkpoint_every),
        ",".join(f"{rank}@{step}" for rank, step in given.kill),
        tuple(given.flags),
        # In the order of the command, whichever ran last.
        tuple(sorted(rows, key=lambda row: given.transports.index(row.transport))),
    )


def run(given):
    if given.draw:
        marked_tables.renew(given.draw / marked_tables.PAGE, partial(failure_runs.renewed, folder=given.draw))
        return
    described, others, rows = machine.describe(ROOT), machine.OtherWork(), []
    runs, each = given.repeats * given.transports, estimate_s(given)
    given.timeout = trainer.limit_s(given.timeout, each)
    print(f"{len(runs)} runs{'' if each is None else f': about {wording.duration(len(runs) * each)}'}", flush=True)
    try:
        for transport in runs:
            show_progress(transport)
            try:
                rows.append(measured(given, transport))
            except RuntimeError as error:
                trainer.say_failed(error)
                continue
            if given.json:
                made = stored_run(given, described, others, rows)
                write_whole(given.json, failure_runs.text_of(made).encode())
    finally:
        if rows:  # also where the file cannot be written
            made = stored_run(given, described, others, rows)
            print(failure_runs.table(made), "", failure_runs.samples_line(made), sep="\n", flush=True)
    return 0 if len(rows) == len(runs) else FAILED
