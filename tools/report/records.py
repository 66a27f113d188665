"""Reads what build/trainer/ddp_train, build/tools/all_reduce_perf and write_bandwidth write into data frames.

Every reader refuses a file that it does not understand with RecordError, which names the file, the place and what is
wrong there. Times are in seconds unless a column's name ends in _us; sizes are in bytes; GB means 1e9 bytes.
"""

import datetime
import json
import math
import re
import statistics
from pathlib import Path

from gloo_bypass_tools.common.failures import BAD_INPUT, Failure
from gloo_bypass_tools.common.transports import BENCHMARKED
from gloo_bypass_tools.report import machine

# Column here -> key of a step in the trainer's file.
STEP_KEYS = {
    "step": "step",
    "step_s": "t_step_s",
    "forward_s": "t_forward_s",
    "backward_s": "t_backward_s",
    "optimizer_s": "t_optimizer_s",
    "barrier_s": "t_barrier_s",
    "all_reduce_s": "t_ar_s",
    "exposed_s": "t_ar_exposed_s",
    "tokens_per_s": "tokens_per_s",
    "flops_per_s": "model_flops_per_s",
    "loss": "loss",
}
# null where the trainer could not know.
NULLABLE_STEP_KEYS = {"loss_mean": "loss_mean", "sent_bytes": "bytes_sent", "received_bytes": "bytes_received"}
STEP_COLUMNS = ("transport", "repeat", "rank", "warm_up", *STEP_KEYS, *NULLABLE_STEP_KEYS)
RUN_COLUMNS = ("transport", "repeat", "rank", "sha256", "parameters", "steps")
RUN_COLUMNS += ("bytes_source", "threads", "peak_memory_mb")

# Column here -> key of a size and transport in the benchmark's file.
REDUCE_KEYS = {
    "p50_us": "p50_us",
    "p99_us": "p99_us",
    "mean_us": "time_us",
    "min_us": "min_us",
    "max_us": "max_us",
    "algbw_gbps": "algbw_gb_s",
    "busbw_gbps": "busbw_gb_s",
    "cpu_percent": "cpu_percent",
}
REDUCE_COLUMNS = ("transport", "algorithm", "ranks", "bytes", "elements", "samples", "rounds", "wrong", *REDUCE_KEYS)
IDLE_KEYS = {"cpu_percent": "cpu_percent", "seconds": "seconds", "memory_bytes": "pss_growth_bytes"}
IDLE_COLUMNS = ("transport", "repeat", "rank", *IDLE_KEYS)
REDUCE_SCHEMA = "gloo-bypass/all_reduce_perf/1"
WRITE_SCHEMA = "gloo-bypass/write_bandwidth/1"
WRITE_COLUMNS = ("repeat", "transport", "ranks", "bytes", "p50_us", "write_gbps")


class RecordError(Failure):
    """A file is not what it should be."""

    status = BAD_INPUT


def add_commit(commits, commit):
    """To those of a measurement's program. RecordError where it is another one than before."""
    known = {one.partition("-")[0] for one in commits}
    if known - {commit.partition("-")[0]}:
        raise RecordError(f"the program was built anew meanwhile: commits {', '.join(sorted(known | {commit}))}")
    commits.add(commit)


def text_of(path):
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: not UTF-8 text") from error


def object_at(place, value):
    """The value, which must be an object."""
    if not isinstance(value, dict):
        raise RecordError(f"{place}: expected an object, found {type(value).__name__}")
    return value


def json_object(path):
    try:
        return object_at(path, json.loads(text_of(path)))
    except json.JSONDecodeError as error:
        raise RecordError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    except RecursionError as error:
        raise RecordError(f"{path}: nested more deeply than any of ours") from error


def of_schema(path, schema):
    """An object of this schema."""
    record = json_object(path)
    if record.get("schema") != schema:
        raise RecordError(f"{path}: schema {record.get('schema')!r}, not {schema!r}")
    return record


def json_lines(path):
    """The objects of a JSON Lines file, each with its line number."""
    found = []
    for number, line in enumerate(text_of(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found.append((number, object_at(f"{path}:{number}", json.loads(line))))
        except json.JSONDecodeError as error:
            raise RecordError(f"{path}:{number}: not JSON: {error.msg}") from error
    return found


def value_at(place, record, key, kind):
    """record[key], which must be there and of this kind."""
    if not isinstance(record, dict) or key not in record:
        raise RecordError(f"{place}: no '{key}'")
    if not isinstance(record[key], kind):
        raise RecordError(f"{place}: '{key}' is {record[key]!r}, not of type {kind.__name__}")
    return record[key]


def number_at(place, record, key, nullable=False):
    """record[key] as a finite number; None where it is null and may be."""
    if not isinstance(record, dict) or key not in record:
        raise RecordError(f"{place}: no '{key}'")
    value = record[key]
    if value is None and nullable:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise RecordError(f"{place}: '{key}' is {value!r}, not a finite number")
    return value


def positive_at(place, record, key):
    value = number_at(place, record, key)
    if value <= 0:
        raise RecordError(f"{place}: '{key}' is {value!r}, not above 0")
    return value


def whole_at(place, record, key, least=0):
    value = number_at(place, record, key)
    if value != int(value) or value < least:
        raise RecordError(f"{place}: '{key}' is {value!r}, not a whole number from {least} on")
    return int(value)


def text_at(place, record, key):
    text = value_at(place, record, key, str).strip()
    if not text:
        raise RecordError(f"{place}: '{key}' is empty")
    return text


def date_at(place, record, key):
    try:
        return datetime.date.fromisoformat(text_at(place, record, key))
    except ValueError as error:
        raise RecordError(f"{place}: '{key}' is {record[key]!r}, not like 2026-11-27") from error


def commit_at(place, record, key, more=""):
    """`more`: a regular expression of what may follow or replace the digits."""
    commit = text_at(place, record, key)
    if not re.fullmatch(f"[0-9a-f]{{7,40}}{more}", commit):
        raise RecordError(f"{place}: '{key}' is {commit!r}, not 7 to 40 hexadecimal digits")
    return commit


def measured_at(path, record, more=""):
    """(commit, date, machine, load_before, others_cores) of a stored run; `more`: as commit_at() takes it."""
    return (
        commit_at(path, record, "commit", more),
        date_at(path, record, "date"),
        machine_at(path, record),
        number_at(path, record, "load_before"),
        number_at(path, record, "others_cores", nullable=True),
    )


def left_out_at(path, record):
    """((what, why), ...) of a stored run."""
    listed, place = value_at(path, record, "left_out", list), f"{path}: left_out"
    return tuple((text_at(place, one, "what"), text_at(place, one, "why")) for one in listed)


def only(place, record, keys):
    """Refuses what a record may not have."""
    for key in record:
        if key not in keys:
            raise RecordError(f"{place}: '{key}' is unknown; known are {', '.join(sorted(keys))}")


def read_training(path, transport, repeat, warm_up):
    """One rank's file of a training run: (rows for the frame of steps, row for the frame of runs).

    The run must have used the transport that it was started for: a silent fallback would compare a thing with itself.
    The trainer has checked that by the counters, where there are some, before it wrote its summary.
    Of a step that an elastic run has repeated, the last generation's record counts.
    """
    start, summary, tries = None, None, {}
    for number, record in json_lines(path):
        place = f"{path}:{number}"
        event = value_at(place, record, "event", str)
        if event == "start":
            start = record
            used = value_at(place, record, "transport", str)
            if used != transport:
                raise RecordError(f"{place}: the run used transport {used}, not {transport}")
        elif event == "step":
            row = {"transport": transport, "repeat": repeat, "rank": None}
            row |= {column: number_at(place, record, key) for column, key in STEP_KEYS.items()}
            row |= {column: number_at(place, record, key, nullable=True) for column, key in NULLABLE_STEP_KEYS.items()}
            generation = number_at(place, record, "generation") if "generation" in record else 0
            step = row["step"]
            if step not in tries or tries[step][0] <= generation:
                tries[step] = generation, row
        elif event == "summary":
            summary = (place, record)
    if start is None:
        raise RecordError(f"{path}: no line with event 'start': is this a trainer's file?")
    if summary is None:
        raise RecordError(f"{path}: no line with event 'summary': the run did not end")
    place, record = summary
    if number_at(place, record, "world_size") > 1 and value_at(place, record, "bytes_source", str) == "none":
        raise RecordError(f"{place}: nobody counted the bytes: whether they went over {transport} is not known")
    rank = number_at(place, record, "rank")
    steps = [row for _, row in tries.values()]
    for index, row in enumerate(steps):
        row["rank"] = rank
        row["warm_up"] = index < warm_up
    run = {
        "transport": transport,
        "repeat": repeat,
        "rank": rank,
        "sha256": value_at(place, record, "sha256", str),
        "parameters": number_at(f"{path}:1", start, "parameters"),
        "steps": len(steps),
        "bytes_source": value_at(place, record, "bytes_source", str),
        "threads": number_at(place, record, "threads"),
        "peak_memory_mb": number_at(place, record, "peak_memory_mb"),
    }
    return steps, run


class StepsSoFar:
    """How far a run has come, from the file it is still writing; each look reads what is new in it."""

    def __init__(self, path):
        self.path, self.offset, self.done, self.last = Path(path), 0, set(), None

    def look(self):
        """(steps done, last step's record or None)."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                whole, end, _ = file.read().rpartition(b"\n")
        except OSError:
            return len(self.done), self.last
        self.offset += len(whole) + len(end)
        for line in whole.splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and record.get("event") == "step":
                self.done.add(str(record.get("step")))  # elastic runs repeat some
                self.last = record
        return len(self.done), self.last


def benchmark_report(path, wanted=REDUCE_SCHEMA):
    """A report of all_reduce_perf, or another program's record, of the schema that this reader knows."""
    report = json_object(path)
    schema = value_at(path, report, "schema", str)
    if schema != wanted:
        raise RecordError(f"{path}: schema {schema!r}, not {wanted!r}")
    return report


def transports_built_in(path):
    """The transports that the program that wrote a report knows; of a report that does not say so, all."""
    build = json_object(path).get("build", {})
    return build.get("transports", BENCHMARKED)


def read_all_reduce(path):
    """Rows for the frame of all-reduces."""
    report = benchmark_report(path)
    parameters = value_at(path, report, "parameters", dict)
    ranks = len(value_at(path, report, "ranks", list))
    algorithm = value_at(path, parameters, "algorithm", str)
    rounds = number_at(path, parameters, "rounds")
    samples = number_at(path, parameters, "iterations") * rounds * ranks
    rows = []
    for index, result in enumerate(value_at(path, report, "results", list)):
        place = f"{path}: results[{index}]"
        size, count = number_at(place, result, "size"), number_at(place, result, "count")
        for one in value_at(place, result, "transports", list):
            row = {
                "transport": value_at(place, one, "transport", str),
                "algorithm": algorithm,
                "ranks": ranks,
                "bytes": int(size),
                "elements": int(count),
                "samples": samples,
                "rounds": rounds,
                "wrong": number_at(place, one, "wrong", nullable=True),
            }
            row |= {column: number_at(place, one, key) for column, key in REDUCE_KEYS.items()}
            rows.append(row)
    return rows


def read_idle(path):
    """Rows for the frame of idle ranks."""
    report = benchmark_report(path)
    rows = []
    for index, one in enumerate(value_at(path, report, "idle", list)):
        place = f"{path}: idle[{index}]"
        transport = value_at(place, one, "transport", str)
        for rank in value_at(place, one, "ranks", list):
            row = {"transport": transport, "repeat": 1, "rank": number_at(place, rank, "rank")}
            row |= {column: number_at(place, rank, key) for column, key in IDLE_KEYS.items()}
            rows.append(row)
    return rows


def read_write_bandwidth(path):
    """GB/s of each direction that ib_write_bw reached with both busy."""
    return number_at(path, benchmark_report(path, WRITE_SCHEMA), "direction_gb_s")


def read_beside_write(reduce_path, write_paths, repeat):
    """Rows for the frame of all-reduces that ran between runs of ib_write_bw: each with the mean of those next to
    it."""
    mean = statistics.fmean(read_write_bandwidth(path) for path in write_paths)
    # frame_of() leaves the other columns out.
    return [row | {"repeat": repeat, "write_gbps": mean} for row in read_all_reduce(reduce_path)]


def frame_of(rows, columns):
    """A frame that has all the columns even without rows."""
    # Here, since measuring needs no pandas and a guest in software emulation takes a minute to load it.
    import pandas

    return pandas.DataFrame(rows, columns=list(columns))


def machine_at(path, record):
    """The machine of a stored run, as machine.stored() made it."""
    found, place = value_at(path, record, "machine", dict), f"{path}: machine"
    only(place, found, machine.KEYS)
    text_at(place, found, "processor")
    text_at(place, found, "kernel")
    whole_at(place, found, "cores", 1)
    return found
