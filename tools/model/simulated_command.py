"""scripts/model simulated: time against the number of ranks, simulated and by model."""

from dataclasses import dataclass, replace
from pathlib import Path

from gloo_bypass_tools.report.records import RecordError, json_object, number_at, value_at
from gloo_bypass_tools.model import output, quantities

SCHEMA = "gloo-bypass/fabric-simulation/1"
HELP = "simulated all-reduces beside the model's, over N"
DESCRIPTION = """Time of a ring all-reduce against the number of ranks, from files of fabric_simulation --json: what \
the sessions took in virtual
time, beside the bounds that the files have.

  schedule    Gloo's own schedule over a transport that adds nothing; with repetitions where edges lose frames
  physics     propagation through 2(N-1) edges and 2(N-1)/N S at the lowest rate"""


@dataclass(frozen=True)
class Run:
    """One number of ranks. Seconds; time_s is None where nothing was finished."""

    ranks: int
    end: str
    time_s: float | None
    schedule_s: float
    physics_s: float
    alpha_beta_s: float
    retransmits: int
    fairness: float | None


@dataclass(frozen=True)
class Series:
    name: str
    size: int
    runs: tuple


def add_options(parser):
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="of fabric_simulation --json; a line each")
    parser.add_argument(
        "--name",
        action="append",
        metavar="TEXT",
        help="what the plot calls a file, in their order; else what was given to the simulation",
    )
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw time and ratio to the schedule against N")


def name_of(inputs):
    parts = [Path(inputs["description"]).stem or "flags"]
    if inputs["sites"]:
        parts.append(f"{inputs['sites']} sites")
    if inputs["loss"]:
        parts.append(f"loss {inputs['loss']}")
    if inputs["max_segment_bytes"] is None:
        parts.append("two segments a rank")
    if inputs["groups"] > 1:
        parts.append(f"{inputs['groups']} groups")
    if inputs["congestion_control"] != "auto":
        parts.append(inputs["congestion_control"])
    return ", ".join(parts)


def run_at(place, record):
    model, time = value_at(place, record, "model", dict), record.get("time_s")
    ranks = number_at(place, record, "ranks")
    if ranks < 2:
        raise RecordError(f"{place}: 'ranks' is {ranks}, not at least 2")
    return Run(
        int(ranks),
        value_at(place, record, "end", str),
        None if time is None else number_at(place, time, "median"),
        number_at(place, model, "schedule_with_loss_s"),
        number_at(place, model, "physics_s"),
        number_at(place, model, "alpha_beta_s"),
        int(number_at(place, value_at(place, record, "sessions", dict), "retransmits")),
        number_at(place, record, "fairness", nullable=True),
    )


def read(path):
    record = json_object(path)
    if value_at(path, record, "schema", str) != SCHEMA:
        said = f"its schema is {record['schema']!r}, not {SCHEMA!r}"
        raise RecordError(f"{path}: {said}: give a file of fabric_simulation --json")
    inputs = value_at(path, record, "inputs", dict)
    for key in ("description", "congestion_control"):
        value_at(path, inputs, key, str)
    for key in ("sites", "groups", "bytes"):
        number_at(path, inputs, key)
    for key in ("loss", "max_segment_bytes"):
        if key not in inputs:
            raise RecordError(f"{path}: no '{key}'")
    results = value_at(path, record, "results", list)
    runs = [run_at(f"{path}: results[{number}]", one) for number, one in enumerate(results)]
    if not runs:
        raise RecordError(f"{path}: has no results")
    return Series(name_of(inputs), int(inputs["bytes"]), tuple(sorted(runs, key=lambda one: one.ranks)))


def ratio(run):
    return None if run.time_s is None or run.schedule_s <= 0 else run.time_s / run.schedule_s


def table_of(series):
    columns = ("N", "simulated", "schedule", "ratio", "physics", "alpha-beta", "repeated", "fairness", "<")
    made = output.table(f"{series.name}: {series.size / 1e6:g} MB", *columns)
    for run in series.runs:
        times = "-" if ratio(run) is None else f"{ratio(run):.2f}"
        simulated, schedule, physics, alpha_beta = (
            quantities.seconds(one) for one in (run.time_s, run.schedule_s, run.physics_s, run.alpha_beta_s)
        )
        fairness = "-" if run.fairness is None else f"{run.fairness:.3f}"
        cells = (simulated, schedule, times, physics, alpha_beta, f"{run.retransmits:,}", fairness)
        output.add_row(made, run.ranks, *cells, "" if run.end == "done" else run.end)
    return made


def record_of(options, all_series):
    return {
        "schema": "gloo-bypass/model-simulated/1",
        "inputs": {"files": [str(path) for path in options.files]},
        "series": [
            {"name": one.name, "bytes": one.size, "runs": [vars(run) | {"ratio": ratio(run)} for run in one.runs]}
            for one in all_series
        ],
    }


def run(options):
    all_series = [read(path) for path in options.files]
    if options.name:
        if len(options.name) != len(all_series):
            raise RecordError(f"--name: {len(options.name)} for {len(all_series)} files; give one for each, or none")
        all_series = [replace(one, name=name) for one, name in zip(all_series, options.name)]
    lines = []
    if options.plot:
        output.write_file(options.plot, output.drawing().simulated(all_series))
        lines.append(f"Plot: {options.plot}")
    output.finish(options, record_of(options, all_series), [table_of(one) for one in all_series], lines)
    return 0
