"""What no study measures of the published figures, and its stored run.

    {"schema": "gloo-bypass/study-published/1", "commit": "0123abc", "date": "2026-11-28", "machine": {...},
     "load_before": 0.1, "others_cores": 0.02,
     "all_reduce": [{"transport": "TCP", "ranks": 2, "bytes": 8388608, "time_us": 6100.0, "busbw_gbps": 1.4}, ...],
     "loop": [{"type": "fp32", "seconds": 9.9}, ...],
     "one_rank": {"plain_s": [...], "ddp_s": [...]}}

all_reduce   all_reduce_perf on one machine, in place: Gloo's ring over each transport
loop         arithmetic_perf: the published multiplications and divisions
one_rank     a step with PyTorch's DDP of one rank, and without (one_rank.py)
"""

import datetime
from dataclasses import dataclass, fields
from pathlib import Path

from gloo_bypass_tools.common import processes
from gloo_bypass_tools.common.rank_processes import clean_environment
from gloo_bypass_tools.common.whole_file import write_whole
from gloo_bypass_tools.report import machine, records, row_lines
from gloo_bypass_tools.report.lines import show_progress
from gloo_bypass_tools.study.transports import DISTINCT

SCHEMA = "gloo-bypass/study-published/1"
PERF, ARITHMETIC = "tools/all_reduce_perf", "trainer/arithmetic_perf"
MIB = 2**20
SIZES = (8 * MIB, 1024 * MIB)
# Of four ranks: the shared bus.
RATIO_BYTES = 64 * MIB
STEPS = 8
LOOPS = ("fp32", "fp64")  # that were published
LIMIT_S = 900.0
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Run:
    commit: str
    date: datetime.date
    machine: dict
    load_before: float
    others_cores: float | None
    all_reduce: tuple
    loop: tuple
    one_rank: dict

    def reduced(self, ranks, size):
        """{transport: its row}"""
        return {row["transport"]: row for row in self.all_reduce if (row["ranks"], row["bytes"]) == (ranks, size)}


KEYS = {"schema"} | {one.name for one in fields(Run)}


def run_program(words, name, folder, environment):
    """StageError, which names its log in the folder, where it failed."""
    show_progress(name)
    log = folder / f"{name}.log"
    outcome = processes.run([str(word) for word in words], log, LIMIT_S, clean_environment() | environment)
    processes.require_success(name, outcome, log)


def reduced(build, folder, ranks, least, most):
    path = folder / f"all-reduce-{ranks}.json"
    words = [build / PERF, "--ranks", ranks, "--transports", ",".join(DISTINCT), "--json", path]
    words += ["-b", least, "-e", most, "-f", 2, "-n", 5, "-w", 1, "-c", 1, "--rounds", 3]
    run_program(words, f"all_reduce_perf-{ranks}", folder, {})
    return [
        {
            "transport": one["transport"],
            "ranks": ranks,
            "bytes": result["size"],
            "time_us": round(one["time_us"], 1),
            "busbw_gbps": round(one["busbw_gb_s"], 4),
        }
        for result in records.benchmark_report(path)["results"]
        for one in result["transports"]
    ]


def looped(build, folder):
    path = folder / "arithmetic.json"
    run_program([build / ARITHMETIC, "--rounds", 5, "--json", path], "arithmetic_perf", folder, ONE_THREAD)
    return loops_of(path)


def loops_of(path):
    """What all published passes take, of arithmetic_perf's report, which has run some of them."""
    loops = records.value_at(path, records.of_schema(path, "gloo-bypass/arithmetic_perf/1"), "loop", list)
    return [
        {"type": one["type"], "seconds": round(records.positive_at(path, one, "seconds_for_published_passes"), 3)}
        for one in loops
        if one["type"] in LOOPS
    ]


def stepped(folder):
    path = folder / "one-rank.json"
    words = ["/usr/bin/python3", Path(__file__).with_name("one_rank.py"), STEPS, path]
    run_program(words, "one_rank", folder, {})
    return {name: [round(one, 4) for one in times] for name, times in records.json_object(path).items()}


def measure(build, root, folder):
    """The run; logs are in the folder. StageError where a program failed."""
    described, others = machine.describe(root), machine.OtherWork()
    rows = reduced(build, folder, 2, *SIZES) + reduced(build, folder, 4, RATIO_BYTES, RATIO_BYTES)
    loop, one_rank = looped(build, folder), stepped(folder)
    return Run(
        described["commit"],
        datetime.date.fromisoformat(machine.today()),
        machine.stored(described),
        described["load_before"],
        others.cores(),
        tuple(rows),
        tuple(loop),
        one_rank,
    )


def write(run, path):
    listed = {"all_reduce": run.all_reduce, "loop": run.loop}
    head = {"schema": SCHEMA} | {key: value for key, value in vars(run).items() if key not in listed}
    write_whole(path, row_lines.text_of(head | {"date": run.date.isoformat()}, **listed).encode())


def row_at(place, row):
    records.only(place, records.object_at(place, row), {"transport", "ranks", "bytes", "time_us", "busbw_gbps"})
    records.text_at(place, row, "transport")
    for key in ("ranks", "bytes", "time_us", "busbw_gbps"):
        records.positive_at(place, row, key)
    return row


def loop_at(place, row):
    records.only(place, records.object_at(place, row), {"type", "seconds"})
    records.text_at(place, row, "type")
    records.positive_at(place, row, "seconds")
    return row


def read(path):
    record = records.of_schema(path, SCHEMA)
    records.only(path, record, KEYS)
    one_rank = records.value_at(path, record, "one_rank", dict)
    for name in ("plain_s", "ddp_s"):
        each = dict(enumerate(records.value_at(f"{path}: one_rank", one_rank, name, list)))
        if not [records.positive_at(f"{path}: {name}", each, at) for at in each]:
            raise records.RecordError(f"{path}: '{name}' is empty")
    listed = {
        key: tuple(
            check(f"{path}: {key}[{at}]", one) for at, one in enumerate(records.value_at(path, record, key, list))
        )
        for key, check in (("all_reduce", row_at), ("loop", loop_at))
    }
    return Run(*records.measured_at(path, record, "( with uncommitted changes)?"), *listed.values(), one_rank)
