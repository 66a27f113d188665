"""Runs of a sweep to its tables: each quantity at each point, as measured over each transport and by model. Pure.

A sample is one all-reduce, one step of one rank, one event, one time that the link was down, or one run, as the
quantity has it; medians are over the samples of all runs.
"""

import math
import statistics
from dataclasses import dataclass

from gloo_bypass_tools.model import ring
from gloo_bypass_tools.report import measurements
from gloo_bypass_tools.study import definition, training_prediction, training_tables
from gloo_bypass_tools.study.tables import Target, quotient, runs_of


@dataclass(frozen=True)
class Quantity:
    """`samples(run, plan, point)`: in seconds, bytes, shares; `per_unit`: what one of `unit` is in these."""

    label: str
    unit: str
    per_unit: float
    samples: object
    logarithmic: bool = False

    @property
    def heading(self):
        return self.label[0].upper() + self.label[1:]


@dataclass(frozen=True)
class Figure:
    """Over one transport, in the quantity's unit. `model` is None where there is none."""

    median: float
    low: float
    high: float
    samples: int
    runs: int
    model: float | None

    @property
    def ratio(self):
        return quotient(self.median, self.model)


@dataclass(frozen=True)
class Row:
    """A quantity at a point; `figures` by transport. `published`: in its unit, of TCP; None where there is none."""

    key: str
    point: definition.Point
    figures: dict
    published: float | None

    @property
    def modelled(self):
        return any(one.model is not None for one in self.figures.values())

    def against(self, transport, baseline):
        """How many times the other transport's figure this one's is."""
        one, other = self.figures.get(transport), self.figures.get(baseline)
        return quotient(one.median, other.median) if one and other else None


def times_down(run, plan, point):
    """How often the link went down while steps were timed: by the time that they took."""
    in_guest = run["cell"]["transport"] in plan.guest
    return max(1, min(point.times_down(in_guest), round(math.fsum(run["step_slowest_s"]) / point.period_s(in_guest))))


def lost_times(run, plan, point):
    """By how much the slowest steps' all-reduces, as many as there were times down, took longer than the middle one.
    Not the steps: what computing loses on a busy machine is no link's fault. None where it was down in half of the
    steps and more: no middle one is then free of it."""
    reduces, times = sorted(run["ar_slowest_s"], reverse=True), times_down(run, plan, point)
    usual = statistics.median(reduces)
    return [one - usual for one in reduces[:times]] if 2 * times < len(reduces) else []


def bus_bandwidth(run, plan, point):
    return [ring.rank_bytes(point.ranks, point.bytes or plan.bytes) / one for one in run["times_s"]]


def sent_again(run, _plan, _point):
    again = run["resent"]["retransmitted"]
    return [] if again is None else [again / max(1, run["fabric"]["offered"])]


def samples_per_s(run, _plan, point):
    return [point.ranks * point.batch / one for one in run["step_slowest_s"]]


def computing(run, _plan, _point):
    return [1 - visible / step for visible, step in zip(run["t_exposed_s"], run["t_step_s"]) if step > 0]


def times_down_in_all(run, plan, point):
    """Also while the ranks met, warmed up and ended."""
    in_guest = run["cell"]["transport"] in plan.guest
    began = 1 + math.floor((run["fabric_s"] - definition.FIRST_DOWN_S) / point.period_s(in_guest))
    return max(1, min(point.times_down(in_guest), began))


def each_time(value):
    """`value(run)`, which is of the whole run, for each time that the link was down."""
    return lambda run, plan, point: [value(run) / times_down_in_all(run, plan, point)]


def straggler_use(run, _plan, _point):
    found = next((rank["cpu_percent"] for rank in run["ranks"] if rank["rank"] == definition.STRAGGLER), None)
    return [] if found is None else [found / 100]


def of_run(key):
    return lambda run, plan, point: run[key]


QUANTITIES = {
    "time": Quantity("time of the all-reduce", "s", 1.0, of_run("times_s"), logarithmic=True),
    "busbw": Quantity("bus bandwidth, 2(N-1)/N S / time", "MB/s", 1e6, bus_bandwidth, logarithmic=True),
    "sent_again": Quantity("frames sent again, of all that entered the fabric", "%", 0.01, sent_again),
    "timeouts": Quantity(
        "time-outs, of all ranks in a run", "", 1.0, lambda run, plan, point: [run["resent"]["timeouts"]]
    ),
    "t_step": Quantity("T_step, a step", "s", 1.0, of_run("t_step_s")),
    "t_ar": Quantity("T_ar, first bucket handed over to last one done", "s", 1.0, of_run("t_ar_s")),
    "t_exposed": Quantity("of it not hidden behind backward", "s", 1.0, of_run("t_exposed_s")),
    "bytes_per_event": Quantity(
        "bytes of an event", "MB", 1e6, lambda run, plan, point: training_tables.SAMPLES["bytes_per_event"](run)
    ),
    "samples_per_s": Quantity("samples a second, all ranks", "1/s", 1.0, samples_per_s),
    "efficiency": Quantity("samples a second and rank, against the first point", "%", 0.01, None),
    "computing": Quantity(
        "T_c / (T_c + T_r), the share of a step besides what is visible of the all-reduce", "%", 0.01, computing
    ),
    "lost_time": Quantity("time lost each time the link was down", "s", 1.0, lost_times, logarithmic=True),
    "repeated_bytes": Quantity("bytes sent again each time", "kB", 1e3, each_time(training_tables.repeated_bytes)),
    "lost_frames": Quantity("frames lost each time", "", 1.0, each_time(lambda run: run["lost_frames"])),
    "cpu": Quantity("processor of the second rank", "% of a core", 0.01, straggler_use),
}
# The model of these starts from the base's.
BASE_KEYS = ("t_step", "t_ar", "t_exposed", "cpu", "samples_per_s")


def base_of(plan, study, record_runs, transport):
    """Medians of the base point over this transport, in seconds and shares; empty where it was not measured."""
    runs, point = runs_of(record_runs, study.base, transport), study.variant(study.base)
    if study.workload != definition.TRAIN:
        return {}
    found = {key: samples_of(plan, study, point, key, runs, {}) for key in BASE_KEYS}
    return {key: statistics.median(samples) for key, samples in found.items() if samples}


def model_of(plan, study, point, transport, key, base, cores):
    """In seconds, bytes, shares; None where no model is. A study's own file leaves bytes to all of training."""
    if study.workload == definition.TRAIN and key == "bytes_per_event":
        return training_prediction.event_bytes(plan, point, transport).frames
    return study.predicted(definition.Asked(plan, study, point, transport, key, base, cores))


def figure_of(key, samples, runs, model):
    if not samples:
        return None
    unit = QUANTITIES[key].per_unit
    figures = (function(samples) / unit for function in (statistics.median, min, max))
    return Figure(*figures, len(samples), runs, None if model is None else model / unit)


def samples_of(plan, study, point, key, runs, base):
    if key != "efficiency":
        return [one for run in runs for one in QUANTITIES[key].samples(run, plan, point)]
    if not base.get("samples_per_s"):
        return []
    first = study.variant(study.base)
    each = samples_of(plan, study, point, "samples_per_s", runs, base)
    return [one / point.ranks / (base["samples_per_s"] / first.ranks) for one in each]


def rows_of(plan, study, record_runs, cores):
    """Quantity by quantity, in the order of the points; what was not measured is left out."""
    bases = {transport: base_of(plan, study, record_runs, transport) for transport in plan.transports}
    rows = []
    for key in study.quantities:
        for point in (study.variant(name) for name in plan.variants):
            figures = {}
            for transport, base in bases.items():
                runs = runs_of(record_runs, point.name, transport)
                model = model_of(plan, study, point, transport, key, base, cores)
                figures[transport] = figure_of(key, samples_of(plan, study, point, key, runs, base), len(runs), model)
            measured = {transport: one for transport, one in figures.items() if one is not None}
            if measured:
                rows.append(Row(key, point, measured, published_of(plan, study, point, key)))
    return rows


def published_of(plan, study, point, key):
    """The published median of this point, whatever the table."""
    if not point.published or study.workload != definition.TRAIN or not training_tables.published_transports(plan):
        return None
    wanted = (*point.published, key, "median")
    figures = (one for one in measurements.read() if one.key[1:] == wanted)
    return next((one.base / QUANTITIES[key].per_unit for one in figures), None)


def targets_of(plan, study, record_runs):
    """What must not depend on what is swept, and bytes of an event against 2(N-1) S and headers."""
    found = []
    # Another machine's processor and model give other parameters.
    for place in ("", " in the guest"):
        there = [run for run in record_runs if (run["cell"]["transport"] in plan.guest) == bool(place)]
        digests = [run["sha256"] for run in there if "sha256" in run]
        if study.same_bits and len(digests) > 1:
            others = len(set(digests))
            label, measured = f"parameters at the end, {len(digests)} runs{place}", f"{others} different ones"
            same = others == 1
            found.append(Target(label, "bit for bit the same in all", "the same" if same else measured, same))
    if "bytes_per_event" in study.quantities:
        found += training_tables.byte_targets(plan, study, record_runs)
    return found


def ways_of(record_runs):
    """What held the straggler down."""
    return sorted({run["limited_by"] for run in record_runs if run.get("limited_by")})


def csv_lines(rows):
    return [
        {
            "quantity": row.key,
            "unit": QUANTITIES[row.key].unit,
            "point": row.point.name,
            "series": row.point.series,
            "transport": transport,
            **vars(one),
            "published": row.published,
        }
        for row in rows
        for transport, one in row.figures.items()
    ]
