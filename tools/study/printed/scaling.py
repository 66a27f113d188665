"""Strong and weak scaling of ddp_train on this machine, from one rank on.

Beside the efficiency against one rank stands T_c / (T_c + T_r), the share of a step besides what is visible of its
all-reduce: what the efficiency would be if ranks shared nothing but the network. The difference is what they share:
cores, caches, memory.

GLOO_DEVICE_TRANSPORT chooses the transport. Each rank has OMP_NUM_THREADS threads, 1 unless set, so that a rank
computes alike whatever their number; more ranks than cores share cores. What follows "--" goes to ddp_train.
"""

import statistics

from gloo_bypass_tools.study.commands import flags
from gloo_bypass_tools.study.printed import markdown, trainer

TITLE = "Strong and weak scaling on this machine, from one rank on"
OF_THE_STUDY = {
    "--spawn": "--ranks says how many",
    "--batch-size": "--batch and --global-batch set it",
    "--accumulate": "samples of a step are counted without it",
    "--steps": "it is an option of the study",
    "--metrics": "the study reads them",
}
HEADER = ("ranks", "batch a rank", "T_step", "samples/s", "efficiency", "T_c / (T_c + T_r)", "overlap")


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
    rows = []
    for ranks, batch, step_s, samples, efficiency, summary in rows_of(measured):
        shares = f"{100 * efficiency:.0f} %", f"{100 * summary['computing']:.0f} %", f"{summary['overlap']:.0f} %"
        rows.append((ranks, batch, f"{1000 * step_s:.1f} ms", f"{samples:.0f}", *shares))
    return markdown.table(HEADER, rows)


def train(given, ranks, batch):
    chosen = flags(spawn=ranks, batch_size=batch, steps=given.steps, metrics="-", no_progress=True)
    said = trainer.run([given.trainer, *chosen, *given.flags], f"{ranks} ranks", given.timeout)
    return ranks, batch, summary_of(trainer.records_of(said))


def numbers(text):
    found = sorted({int(one) for one in text.split(",")})
    if found[0] < 1:
        raise ValueError(text)
    return found


def add_options(options):
    add = options.parser.add_argument
    add("--trainer", default="build/trainer/ddp_train")
    add("--ranks", type=numbers, default=[1, 2, 4], metavar="N,N,...")
    add("--steps", type=int, default=20, help="of each run; the first one is left out")
    add("--batch", type=int, default=8, help="samples a rank, where each rank keeps its own (weak)")
    add("--global-batch", type=int, default=24, help="samples of all ranks, which share them (strong)")
    add("--timeout", type=float, default=3600, metavar="S", help="of a run (default 3600)")


def problem_of(given):
    if problem := trainer.problem_of(given.flags, OF_THE_STUDY):
        return problem
    uneven = [ranks for ranks in given.ranks if given.global_batch % ranks]
    if uneven:
        return f"--global-batch {given.global_batch} cannot be shared by {uneven[0]} ranks alike"
    return "--steps: 2 at least, the first one is left out" if given.steps < 2 else ""


def run(given):
    batches = {
        "Weak scaling": {ranks: given.batch for ranks in given.ranks},
        "Strong scaling": {ranks: given.global_batch // ranks for ranks in given.ranks},
    }
    for title, batch_of in batches.items():
        measured = [train(given, ranks, batch) for ranks, batch in batch_of.items()]
        print(f"{title}\n\n{table(measured)}\n", flush=True)
