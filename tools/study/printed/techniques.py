"""Trains by one technique after the other over slow networks: what each does to bytes, time and loss.

Each run is ddp_train (--model tiny unless said) on scripts/fabric-run's emulated links, one run after the other, points
and transports in turn. Says first how many runs there are, and how long they take if each step were a plain one. A run
that fails is said, the others go on, and the exit status is 1. Prints a table a link, in Markdown; with --output a
folder gets every step as CSV, too, and plots of loss against time and against bytes; --json writes the stored run after
each run, from which --draw makes the tables of a page (README.md) and pictures of the loss beside it, and goes on with
a file that is there, if study, ranks, flags, the files that they name, steps, commit, programs, machine, its TCP and
the environment's settings are the same. "To the common loss": until the mean loss of five steps is at most the lowest
of the point that learnt least. "Waiting": the share of a step in which ranks that share a model have nothing to
compute. What follows "--" goes to ddp_train.
"""

import argparse
import math
import os
import re
import statistics
import tempfile
from functools import partial
from itertools import accumulate
from pathlib import Path

from gloo_bypass_tools.common import program_places
from gloo_bypass_tools.common.argument_types import names_of, result_file
from gloo_bypass_tools.common.failures import FAILED
from gloo_bypass_tools.common.program_places import ROOT
from gloo_bypass_tools.common.whole_file import write_whole
from gloo_bypass_tools.fabric_run import enclosure
from gloo_bypass_tools.model import ring
from gloo_bypass_tools.report import machine, marked_tables, wording
from gloo_bypass_tools.report.lines import show_progress
from gloo_bypass_tools.report.records import RecordError
from gloo_bypass_tools.report.stages import telling
from gloo_bypass_tools.study import estimates
from gloo_bypass_tools.study.commands import flags, model_flags
from gloo_bypass_tools.study.measurement import digest_of, kernel_tcp
from gloo_bypass_tools.study.options import FILES
from gloo_bypass_tools.study.printed import markdown, technique_runs, trainer
from gloo_bypass_tools.study.printed.technique_entries import LINKS, STUDIES
from gloo_bypass_tools.study.transports import SWITCHED

TITLE = "What ddp_train's techniques do to bytes, time and loss on slow links"
WINDOW = technique_runs.WINDOW
PROGRAMS = ("trainer/ddp_train", "tools/fabric/fabric")
FILE_FLAGS = (*(f"--{name}" for name in FILES), "--model-config")


class Run:
    """One training: its steps, the first one left out of means."""

    def __init__(self, point, link, transport, records):
        """`records`: of each rank."""
        self.point, self.link, self.transport = point, link, transport
        ranks = [[record for record in rank if record["event"] == "step"] for rank in records]
        apart = ranks[0] and ranks[0][0]["loss_mean"] is None
        self.steps = in_order_of_time(ranks) if apart else ranks[0]
        if len(self.steps) < WINDOW:
            raise ValueError(f"{point}, {link}, {transport}: {len(self.steps)} steps; {WINDOW} are needed at least")
        self.waiting = waiting(ranks)
        self.seconds = list(accumulate(step["t_step_s"] for step in self.steps))
        self.bytes = list(accumulate(step["bytes_sent"] or 0 for step in self.steps))

    def mean_bytes(self):
        """A mean, since some methods send only now and then."""
        return (self.bytes[-1] - self.bytes[0]) / (len(self.bytes) - 1)

    def mean_seconds(self):
        return (self.seconds[-1] - self.seconds[0]) / (len(self.seconds) - 1)

    def mean_of(self, key):
        """Of a step's record, over the steps but the first; None where they do not have it."""
        values = [step.get(key) for step in self.steps[1:]]
        return None if None in values else round(statistics.fmean(values), 4)

    def idle(self):
        """The share of a step in which there is nothing to compute, or None."""
        return technique_runs.idle_share(self.waiting, self.mean_of("t_ar_exposed_s"), self.mean_seconds())

    def smoothed(self):
        """The mean loss of WINDOW steps, from the WINDOWth on."""
        return technique_runs.smoothed([step["loss_mean"] for step in self.steps])

    def reaching(self, loss):
        """(steps, seconds, bytes that a rank had sent) when the smoothed loss was first at most `loss`."""
        step = next(i for i, value in enumerate(self.smoothed(), WINDOW - 1) if value <= loss)
        return step + 1, self.seconds[step], self.bytes[step]


def waiting(ranks):
    """The share of a step in which ranks that share a model wait for each other, a mean over ranks and steps but the
    first; None where they do not."""
    steps = [step for rank in ranks for step in rank[1:]]
    if not steps or "t_wait_s" not in steps[0]:
        return None
    return statistics.fmean((step["t_wait_s"] + step["t_barrier_s"]) / step["t_step_s"] for step in steps)


def in_order_of_time(ranks):
    """Of ranks that do not wait for each other: N steps of N ranks make one, whichever ranks they are of."""
    ends = [(end, step) for steps in ranks for end, step in zip(accumulate(one["t_step_s"] for one in steps), steps)]
    ends.sort(key=lambda one: one[0])
    merged, before = [], 0
    for last in range(len(ranks), len(ends) + 1, len(ranks)):
        group, now = [step for _, step in ends[last - len(ranks) : last]], ends[last - 1][0]
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


def table(runs, base):
    """Of one link. `base`: the run that all stand against, or None."""
    target, rows = technique_runs.common_loss(runs), []
    waits = any(run.waiting is not None for run in runs)
    header = ["", "transport", "sent a step and rank", "T_step", "", *(["waiting"] if waits else [])]
    header += ["last loss", f"to the common loss of {target:.3f}", "", ""]
    for run in runs:
        steps, seconds, sent = run.reaching(target)
        row = [run.point, run.transport, f"{run.mean_bytes() / 1e3:.1f} kB", f"{1e3 * run.mean_seconds():.0f} ms"]
        row.append(f"{base.mean_seconds() / run.mean_seconds():.2f} x" if base else "")
        if waits:
            row.append("" if run.waiting is None else f"{100 * run.idle():.0f} %")
        row += [f"{run.smoothed()[-1]:.3f}", f"{steps} steps", f"{seconds:.2f} s", f"{sent / 1e6:.2f} MB"]
        rows.append(row)
    return markdown.table(header, rows, left=2)


def estimate_s(given, study, point, link):
    """Of a run, on a quick machine, if it sent as much as a plain one; None where flags change what a step computes."""
    name, ranks = trainer.model_of(given.flags, study.model), study.ranks.get(point, given.ranks)
    computing_s = trainer.computing_s([*given.flags, *study.points[point].split()], name, ranks)
    if computing_s is None:
        return None
    size = 4 * trainer.PARAMETERS[name]
    slowest = min(float(one) for one in re.findall(r"rate=(\d+)Mbit", LINKS[link]))
    delay_s = max((float(one) for one in re.findall(r"delay=(\d+)ms", LINKS[link])), default=0.0) / 1e3
    sending_s = ring.rank_bytes(ranks, size) * 8 / (slowest * 1e6) + ring.rounds(ranks) * delay_s
    crossing_s = ring.event_bytes(ranks, size) / estimates.EVENT_BYTES_A_SECOND
    # Rank 0's parameters go to all first, in a tree.
    meeting_s = math.ceil(math.log2(ranks)) * (size * 8 / (slowest * 1e6) + delay_s)
    return estimates.START_S + meeting_s + given.steps * (computing_s + max(sending_s, crossing_s))


def announce(given, study, cells):
    """How many runs there are, and how long they take if each step were a plain one."""
    each = [estimate_s(given, study, point, link) for point, link, _ in cells]
    known = "" if None in each else f": about {wording.duration(sum(each))}"
    print(f"{len(cells)} runs{known}", flush=True)


def train(given, study, point, link, transport):
    ranks = study.ranks.get(point, given.ranks)
    limit_s = trainer.limit_s(given.timeout, estimate_s(given, study, point, link))
    with tempfile.TemporaryDirectory() as folder:
        words = [
            *(ROOT / "scripts/fabric-run", *flags(transport=transport, ranks=ranks), *LINKS[link].split()),
            *flags(output=Path(folder) / "run", timeout=limit_s, fabric=given.build / "tools/fabric/fabric"),
            *("--", given.build / "trainer/ddp_train", *model_flags(given.flags, study.model)),
            *flags(steps=given.steps, metrics=f"{folder}/metrics-{{rank}}.jsonl", no_progress=True),
            *(*study.points[point].split(), *given.flags),
        ]
        trainer.run(words, f"{point}, {link}, {transport}")
        metrics = [Path(folder, f"metrics-{rank}.jsonl").read_text() for rank in range(ranks)]
    return Run(point, link, transport, [trainer.records_of(text) for text in metrics])


def step_lines(runs):
    return [
        {
            **{"point": run.point, "link": run.link, "transport": run.transport},
            **{"step": step["step"], "loss_mean": step["loss_mean"], "seconds": f"{seconds:.6f}", "bytes_sent": sent},
            **{"t_step_s": step["t_step_s"], "t_ar_s": step["t_ar_s"]},
        }
        for run in runs
        for step, seconds, sent in zip(run.steps, run.seconds, run.bytes)
    ]


def add_options(options):
    add, listed = options.parser.add_argument, names_of(SWITCHED)
    add("study", nargs="?", choices=STUDIES)
    add("--points", metavar="A,B", help="of the study (default all)")
    about = f"of {', '.join(LINKS)} (default open,50Mbit)"
    add("--links", type=names_of(LINKS), default=["open", "50Mbit"], metavar="A,B", help=about)
    about = f"of {', '.join(SWITCHED)} (default {SWITCHED[0]})"
    add("--transports", type=listed, default=list(SWITCHED[:1]), metavar="A,B", help=about)
    add("--ranks", type=int, default=2, help="of points without a number of their own (default 2)")
    add("--steps", type=int, default=100)
    about = f"of a run (default {trainer.PATIENCE:g} times its estimate, at least {trainer.LEAST_LIMIT_S})"
    add("--timeout", type=int, metavar="S", help=about)
    add("--build", type=Path, default=ROOT / "build", metavar="DIR")
    add("--output", type=Path, metavar="DIR", help="a new folder for steps and plots")
    add("--json", type=result_file, metavar="FILE", help="write the stored run, with the machine")
    about = (
        f"measure nothing: make the tables of DIR/{marked_tables.PAGE} and its pictures from DIR/*{marked_tables.RUN}"
    )
    add("--draw", type=Path, metavar="DIR", help=about)


def problem_of(given):
    if given.draw:
        return ""
    if given.study is None:
        return f"say which study, one of {', '.join(STUDIES)}; or --draw DIR"
    known = STUDIES[given.study].points
    try:
        given.points = names_of(known)(given.points) if given.points else list(known)
    except argparse.ArgumentTypeError as error:
        return f"--points: {error}"
    own = {"--steps": "it is an option of the study", "--metrics": "the study reads them"}
    for point in given.points:
        own |= {word: f"point '{point}' sets it" for word in known[point].split() if word.startswith("--")}
    if problem := trainer.problem_of(given.flags, own):
        return problem
    if given.output and given.json and given.json.is_file():
        return f"--output: has every step, and those of {given.json} are gone: choose another file, or leave it out"
    if given.steps < WINDOW:
        return f"--steps {given.steps}: {WINDOW} at least"
    return program_places.missing(given.build, PROGRAMS)


def begun(given, described):
    """The stored run to go on with, or None. RecordError where the file's was measured otherwise."""
    if not given.json or not given.json.is_file():
        return None
    old = technique_runs.read(given.json)
    wanted = {"commit": described["commit"], "machine": machine.stored(described), "study": given.study}
    wanted |= {"ranks": given.ranks, "flags": tuple(given.flags)}
    wanted |= {name: described[name] for name in technique_runs.SET_UP}
    others = [name for name, value in wanted.items() if getattr(old, name) != value]
    if {len(row.steps_s) + 1 for row in old.rows} != {given.steps}:
        others.append("steps")
    if others:
        raise RecordError(f"{given.json}: differs in {', '.join(others)}: choose another file, or move it away")
    return old


def set_up(given):
    """What bears on the figures beside commit, machine and flags. Digests of programs, since a commit does not say what
    they were built from, and of files, since their names do not say what is in them."""
    paths = {Path(name).name: given.build / name for name in PROGRAMS}
    return {
        "programs": {name: digest_of(path) for name, path in paths.items() if path.exists()},
        "files": files_of(given.flags),
        "environment": telling(os.environ),
        "kernel_tcp": kernel_tcp(),
    }


def files_of(chosen):
    """{flag: SHA-256} of the files that these flags of ddp_train name."""
    return {flag: digest_of(path) for flag, path in trainer.values_of(chosen) if flag in FILE_FLAGS}


def write_stored(given, described, others_cores, old, rows):
    """`old`: the run that this one goes on with, or None. The most load of both."""
    known = [one for one in (old.others_cores if old else None, others_cores) if one is not None]
    load = max(described["load_before"], old.load_before if old else 0.0)
    points = list(STUDIES[given.study].points)
    places = {"link": list(LINKS), "point": points, "transport": list(SWITCHED)}
    ordered = sorted(rows, key=lambda row: [order.index(row[name]) for name, order in places.items()])
    head = described | {"load_before": load}, max(known, default=None), given.study, given.ranks, given.flags
    write_whole(given.json, technique_runs.text_of(*head, ordered).encode())


def show_link(given, study, link, runs, old):
    """What was measured of a link, which may be a part. Where `old` is gone on with, its table has all rows."""
    if not runs:
        return
    if old is None:
        ranks = "" if study.ranks else f"{given.ranks} ranks, "
        base = next((one for one in runs if (one.point, one.transport) == (given.points[0], given.transports[0])), None)
        print(f"{study.title}: {ranks}{link} ({LINKS[link]}), {given.steps} steps\n\n{table(runs, base)}\n", flush=True)
    if given.output:
        from gloo_bypass_tools.study.printed import technique_pictures
        from gloo_bypass_tools.study.rendering import csv_text

        (given.output / f"{link}.csv").write_text(csv_text(step_lines(runs)))
        technique_pictures.write_measured(given.output / f"{link}.svg", f"{study.title}, {link}", runs)


def measure(given, study, cells, old, keep):
    """Whether all of `cells` were measured; `keep` takes each run. What there is of a link is shown however it ends."""
    all_well = True
    for link in given.links:
        runs = []
        try:
            for cell in (cell for cell in cells if cell[1] == link):
                show_progress(", ".join(cell))
                try:
                    runs.append(train(given, study, *cell))
                except (RuntimeError, ValueError) as error:
                    trainer.say_failed(error)
                    all_well = False
                else:
                    keep(runs[-1])
        finally:
            show_link(given, study, link, runs, old)
    return all_well


def draw(folder):
    from gloo_bypass_tools.study.printed import technique_pictures

    marked_tables.renew(folder / marked_tables.PAGE, partial(technique_runs.renewed, folder=folder))
    technique_pictures.write_stored(folder)


def run(given):
    if given.draw:
        return draw(given.draw)
    enclosure.check_tools()
    enclosure.check_right()
    study, described, others = STUDIES[given.study], machine.describe(ROOT) | set_up(given), machine.OtherWork()
    old = begun(given, described)
    rows = [technique_runs.record_of(row) for row in old.rows] if old else []
    done = {(row["point"], row["link"], row["transport"]) for row in rows}
    cells = [
        (point, link, transport) for link in given.links for point in given.points for transport in given.transports
    ]
    missing = [cell for cell in cells if cell not in done]
    announce(given, study, missing)
    if given.output:
        given.output.mkdir(parents=True)

    def keep(one):
        rows.append(technique_runs.row_record(one))
        if given.json:
            write_stored(given, described, others.cores(), old, rows)

    try:
        return 0 if measure(given, study, missing, old, keep) else FAILED
    finally:
        if old is not None:
            print(technique_runs.table(technique_runs.read(given.json)))
