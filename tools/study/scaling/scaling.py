#!/usr/bin/python3
"""Strong and weak scaling of ddp_train on this machine, from one rank on.

Beside the efficiency against one rank stands T_c / (T_c + T_r), the share of a step besides what is visible of its
all-reduce: what the efficiency would be if ranks shared nothing but the network. The difference is what they share:
cores, caches, memory.

usage: scaling.py [--trainer build/trainer/ddp_train] [--ranks 1,2,4] [--steps 20] [--batch 8] [--global-batch 24]
                  [-- FLAG_OF_DDP_TRAIN ...]

GLOO_DEVICE_TRANSPORT chooses the transport. Each rank has OMP_NUM_THREADS threads, 1 unless set, so that a rank
computes alike whatever their number; more ranks than cores share cores.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys


def summary_of(records):
    """Medians over the steps but the first."""
    steps = [record for record in records if record["event"] == "step"][1:]
    if not steps:
        raise ValueError("two steps are needed at least: the first one is left out")
    return {
        "t_step_s": statistics.median(step["t_step_s"] for step in steps),
        "computing": statistics.median(1 - step["t_ar_exposed_s"] / step["t_step_s"] for step in steps),
        "overlap": statistics.median(step["overlap"] or 0.0 for step in steps),
    }


def rows_of(measured):
    """measured: (ranks, batch a rank, summary), the first one with the fewest ranks, against which the others stand."""

    def samples_per_s(ranks, batch, summary):
        return ranks * batch / summary["t_step_s"]

    first = measured[0]
    for ranks, batch, summary in measured:
        efficiency = samples_per_s(ranks, batch, summary) / ranks / (samples_per_s(*first) / first[0])
        yield ranks, batch, summary["t_step_s"], samples_per_s(ranks, batch, summary), efficiency, summary


def table(measured):
    header = "| ranks | batch a rank | T_step | samples/s | efficiency | T_c / (T_c + T_r) | overlap |"
    lines = [header, "|" + " ---: |" * 7]
    for ranks, batch, step_s, samples, efficiency, summary in rows_of(measured):
        lines.append(
            f"| {ranks} | {batch} | {1000 * step_s:.1f} ms | {samples:.0f} | {100 * efficiency:.0f} % | "
            f"{100 * summary['computing']:.0f} % | {summary['overlap']:.0f} % |"
        )
    return "\n".join(lines)


def run(options, ranks, batch):
    command = [
        options.trainer,
        "--spawn",
        ranks,
        "--batch-size",
        batch,
        "--steps",
        options.steps,
        "--metrics",
        "-",
        "--no-progress",
        *options.flags,
    ]
    try:
        ended = subprocess.run(
            [str(word) for word in command],
            capture_output=True,
            text=True,
            timeout=options.timeout,
            env={"OMP_NUM_THREADS": "1"} | os.environ,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{ranks} ranks: not done within {options.timeout:g} s (--timeout)") from None
    if ended.returncode:
        raise RuntimeError(f"{ranks} ranks: {ended.stderr.strip() or f'exit status {ended.returncode}'}")
    return ranks, batch, summary_of([json.loads(line) for line in ended.stdout.splitlines()])


def numbers(text):
    found = sorted({int(one) for one in text.split(",")})
    if found[0] < 1:
        raise ValueError(text)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", default="build/trainer/ddp_train")
    parser.add_argument("--ranks", type=numbers, default=[1, 2, 4], metavar="N,N,...")
    parser.add_argument("--steps", type=int, default=20, help="of each run, the first of which is left out")
    parser.add_argument("--batch", type=int, default=8, help="samples a rank, where each rank keeps its own (weak)")
    parser.add_argument("--global-batch", type=int, default=24, help="samples of all ranks, which share them (strong)")
    parser.add_argument("--timeout", type=float, default=3600, metavar="S", help="of a run (default 3600)")
    parser.add_argument("flags", nargs="*", metavar="-- FLAG", help="of ddp_train")
    options = parser.parse_args()
    uneven = [ranks for ranks in options.ranks if options.global_batch % ranks]
    if uneven or options.steps < 2:
        parser.error(
            f"--global-batch {options.global_batch} cannot be shared by {uneven[0]} ranks alike"
            if uneven
            else "--steps: 2 at least, the first one is left out"
        )
    try:
        for title, batch_of in (
            ("Weak scaling", lambda ranks: options.batch),
            ("Strong scaling", lambda ranks: options.global_batch // ranks),
        ):
            measured = [run(options, ranks, batch_of(ranks)) for ranks in options.ranks]
            print(f"{title}\n\n{table(measured)}\n", flush=True)
    except (OSError, RuntimeError) as error:
        print(f"scaling.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
