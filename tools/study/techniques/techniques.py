#!/usr/bin/python3
"""Trains by one technique after the other over slow networks: what each does to bytes, time and loss.

usage: techniques.py STUDY [--links open,50Mbit] [--transports TCP,DPDK] [--ranks 2] [--steps 100] [--output DIR]
                     [-- FLAG_OF_DDP_TRAIN ...]

Each run is ddp_train (--model tiny unless said) on scripts/fabric-run's emulated links, one run after the other, points
and transports in turn. Prints a table a link, in Markdown; with --output a folder gets every step as CSV, too, and
plots of loss against time and against bytes. "To the common loss": until the mean loss of five steps is at most what
the point that learnt least came to. "Waiting": the share of a step in which ranks that share a model have nothing to
compute.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from entries import LINKS, STUDIES

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
from gloo_bypass_tools.common.argument_types import names_of, split_at_dashes  # noqa: E402
from gloo_bypass_tools.study.training import model_flags  # noqa: E402
from gloo_bypass_tools.study.transports import SWITCHED  # noqa: E402

WINDOW = 5


class Run:
    """One training: its steps, the first one left out of means."""

    def __init__(self, point, link, transport, records):
        """`records`: of each rank."""
        self.point, self.link, self.transport = point, link, transport
        ranks = [[record for record in rank if record["event"] == "step"] for rank in records]
        apart = ranks[0] and ranks[0][0]["loss_mean"] is None
        self.steps = in_order_of_time(ranks) if apart else ranks[0]
        if len(self.steps) < WINDOW:
            raise ValueError(f"{point}: {len(self.steps)} steps; {WINDOW} are needed at least")
        self.waiting = waiting(ranks)
        self.seconds, self.bytes = [], []
        elapsed = sent = 0
        for step in self.steps:
            elapsed += step["t_step_s"]
            sent += step["bytes_sent"] or 0
            self.seconds.append(elapsed)
            self.bytes.append(sent)

    def mean_bytes(self):
        """A mean, since some methods send only now and then."""
        return (self.bytes[-1] - self.bytes[0]) / (len(self.bytes) - 1)

    def mean_seconds(self):
        return (self.seconds[-1] - self.seconds[0]) / (len(self.seconds) - 1)

    def smoothed(self):
        """The mean loss of WINDOW steps, from the WINDOWth on."""
        losses = [step["loss_mean"] for step in self.steps]
        return [statistics.fmean(losses[end - WINDOW : end]) for end in range(WINDOW, len(losses) + 1)]

    def reaching(self, loss):
        """(steps, seconds, bytes that a rank had sent) when the smoothed loss was first at most `loss`."""
        step = next(i for i, value in enumerate(self.smoothed(), WINDOW - 1) if value <= loss)
        return step + 1, self.seconds[step], self.bytes[step]


def waiting(ranks):
    """The share of a step in which a rank has nothing to compute, a mean over ranks and steps but the first; None where
    ranks do not share a model."""
    steps = [step for rank in ranks for step in rank[1:]]
    if not steps or "t_wait_s" not in steps[0]:
        return None
    return statistics.fmean((step["t_wait_s"] + step["t_barrier_s"]) / step["t_step_s"] for step in steps)


def in_order_of_time(ranks):
    """Of ranks that do not wait for each other: as many of their steps as there are ranks make one, whosever."""
    came = []
    for steps in ranks:
        elapsed = 0
        for step in steps:
            elapsed += step["t_step_s"]
            came.append((elapsed, step))
    came.sort(key=lambda one: one[0])
    merged, before = [], 0
    for end in range(len(ranks), len(came) + 1, len(ranks)):
        group = [step for _, step in came[end - len(ranks) : end]]
        now = came[end - 1][0]
        merged.append(
            {
                "step": len(merged) + 1,
                "t_step_s": now - before,
                "t_ar_s": 0,
                "loss_mean": statistics.fmean(step["loss"] for step in group),
                "bytes_sent": statistics.fmean(step["bytes_sent"] or 0 for step in group),
            }
        )
        before = now
    return merged


def common_loss(runs):
    return max(min(run.smoothed()) for run in runs)


def table(runs):
    """Of one link; the first run is what the others stand against."""
    target, first = common_loss(runs), runs[0]
    waits = any(run.waiting is not None for run in runs)
    lines = [
        "| | transport | sent a step and rank | T_step | | "
        + "waiting | " * waits
        + f"last loss | to the common loss of {target:.3f} | | |",
        "| --- | --- | " + "---: | " * waits + "---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for run in runs:
        steps, seconds, sent = run.reaching(target)
        faster = first.mean_seconds() / run.mean_seconds()
        waited = "" if not waits else "| " if run.waiting is None else f"{100 * run.waiting:.0f} % | "
        lines.append(
            f"| {run.point} | {run.transport} | {run.mean_bytes() / 1e3:.1f} kB | "
            f"{1e3 * run.mean_seconds():.0f} ms | {faster:.2f} x | {waited}{run.smoothed()[-1]:.3f} | "
            f"{steps} steps | {seconds:.2f} s | {sent / 1e6:.2f} MB |"
        )
    return "\n".join(lines)


def measure(options, study, point, link, transport):
    ranks = study.ranks.get(point, options.ranks)
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "metrics-{rank}.jsonl"
        command = [
            ROOT / "scripts/fabric-run",
            "--transport",
            transport,
            "--ranks",
            ranks,
            *LINKS[link],
            "--output",
            Path(folder) / "run",
            "--timeout",
            options.timeout,
            "--fabric",
            options.build / "tools/fabric/fabric",
            "--",
            options.build / "trainer/ddp_train",
            *model_flags(options.flags, study.model),
            "--steps",
            options.steps,
            "--metrics",
            metrics,
            "--no-progress",
            *study.points[point],
            *options.flags,
        ]
        ended = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, env={"OMP_NUM_THREADS": "1"} | os.environ
        )
        if ended.returncode:
            said = (ended.stderr.strip() or ended.stdout.strip()).splitlines()
            reason = said[-1] if said else f"exit status {ended.returncode}"
            raise RuntimeError(f"{point}, {link}, {transport}: {reason}")
        return Run(
            point,
            link,
            transport,
            [
                [json.loads(line) for line in Path(str(metrics).format(rank=rank)).read_text().splitlines()]
                for rank in range(ranks)
            ],
        )


def write_steps(path, runs):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["point", "link", "transport", "step", "loss_mean", "seconds", "bytes_sent", "t_step_s", "t_ar_s"]
        )
        for run in runs:
            for step, seconds, sent in zip(run.steps, run.seconds, run.bytes):
                writer.writerow(
                    [
                        run.point,
                        run.link,
                        run.transport,
                        step["step"],
                        step["loss_mean"],
                        f"{seconds:.6f}",
                        sent,
                        step["t_step_s"],
                        step["t_ar_s"],
                    ]
                )


def draw(folder, title, link, runs):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4), sharey=True)
    for run in runs:
        smoothed = run.smoothed()
        for axis, values, unit in ((axes[0], run.seconds, 1), (axes[1], run.bytes, 1e6)):
            axis.plot([value / unit for value in values[WINDOW - 1 :]], smoothed, label=f"{run.point}, {run.transport}")
    axes[0].set(xlabel="seconds", ylabel=f"loss, mean of {WINDOW} steps", title=f"{title}, {link}")
    axes[1].set(xlabel="MB sent by rank 0", xscale="log")
    axes[1].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(folder / f"{link}.svg")
    pyplot.close(figure)


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--points", metavar="A,B", help="of the study (default all)")
    parser.add_argument(
        "--links",
        type=names_of(LINKS),
        default=["open", "50Mbit"],
        metavar="A,B",
        help=f"of {', '.join(LINKS)} (default open,50Mbit)",
    )
    parser.add_argument(
        "--transports",
        type=names_of(SWITCHED),
        default=list(SWITCHED[:1]),
        metavar="A,B",
        help=f"of {', '.join(SWITCHED)} (default {SWITCHED[0]})",
    )
    parser.add_argument("--ranks", type=int, default=2, help="of points without a number of their own (default 2)")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--timeout", type=int, default=600, metavar="S", help="of a run")
    parser.add_argument("--build", type=Path, default=ROOT / "build", metavar="DIR")
    parser.add_argument("--output", type=Path, metavar="DIR", help="a new folder for steps and plots")
    own, program = split_at_dashes(arguments)
    options = parser.parse_args(own)
    options.flags = program[1:]
    known = STUDIES[options.study].points
    try:
        options.points = names_of(known)(options.points) if options.points else list(known)
    except argparse.ArgumentTypeError as error:
        parser.error(f"--points: {error}")
    if options.steps < WINDOW:
        parser.error(f"--steps {options.steps}: {WINDOW} at least")
    return options


def main():
    options = options_of(sys.argv[1:])
    study = STUDIES[options.study]
    try:
        if options.output:
            options.output.mkdir(parents=True)
        for link in options.links:
            runs = [
                measure(options, study, point, link, transport)
                for point in options.points
                for transport in options.transports
            ]
            ranks = "" if study.ranks else f"{options.ranks} ranks, "
            print(f"{study.title}: {ranks}{link} ({' '.join(LINKS[link])}), {options.steps} steps\n")
            print(f"{table(runs)}\n", flush=True)
            if options.output:
                write_steps(options.output / f"{link}.csv", runs)
                draw(options.output, study.title, link, runs)
    except (OSError, RuntimeError, ValueError) as error:
        print(f"techniques.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
