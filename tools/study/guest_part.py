"""The part of a study that is measured in the guest of scripts/rdma-guest: one guest for all its cells, one after
another.

    scripts/study                               this machine: measures its own cells first, then
      FOLDER/guest/order.json                   writes down what is to be measured, and starts
      scripts/rdma-guest run -- scripts/study in-guest FOLDER/guest
        FOLDER/guest/results.json, raw/, logs/  in the guest: the same study's measurement, of the other cells
      FOLDER/results.json                       takes over what is there, however the guest ended

Bounded by the limits of all its runs together, and by a day, the guest's longest. Units: seconds, MiB.
"""

import os

from gloo_bypass_tools.fabric_run import place
from gloo_bypass_tools.common import processes
from gloo_bypass_tools.report import records
from gloo_bypass_tools.report.results import ResultsFolder
from gloo_bypass_tools.study import commands, definition

FOLDER, ORDER, SCHEMA = "guest", "order.json", "gloo-bypass/study-order/1"
MOST_S = 86400
# Of the guest: its system, links and files under way; a rank, by what it trains; at the least as much as fabric-run's
# own guests have.
SYSTEM_MIB, LEAST_MIB = 1536, 4096
RANK_MIB = {definition.MODEL: 3072, definition.TINY: 512}
RANK_OF_REDUCE_MIB = 512
# Bytes of a rank for each of the vector that it reduces: in and out of the benchmark, what is checked, segments under
# way.
VECTORS = 5


def memory_mib(plan, study):
    """What the guest needs for the largest cell."""
    points = [study.variant(name) for name in plan.variants]
    if study.workload == definition.TRAIN:
        of_ranks = max(point.ranks for point in points) * RANK_MIB[plan.guest_model]
    else:
        sizes = [plan.at(point) for point in points]
        of_ranks = max(one.ranks * (RANK_OF_REDUCE_MIB + VECTORS * one.bytes // 2**20) for one in sizes)
    return max(LEAST_MIB, SYSTEM_MIB + of_ranks)


def command_of(measurement, within, limit_s):
    programs, memory = measurement.programs, memory_mib(measurement.plan, measurement.study)
    options = commands.flags(rxe=0, memory=memory, timeout=round(limit_s))
    inside = (programs.python, programs.study, "in-guest", within.path.absolute())
    return [programs.guest, "run", *options, "--", *inside]


def write_order(measurement, within):
    programs = {name: str(value) for name, value in vars(measurement.programs).items() if value is not None}
    study, plan = measurement.study.name, measurement.plan.as_record()
    within.write_json(ORDER, {"schema": SCHEMA, "study": study, "plan": plan, "programs": programs})


def read_order(folder):
    """(name of the study, plan's record, programs' paths); RecordError says what is wrong with it."""
    path = folder.place(ORDER)
    record = records.of_schema(path, SCHEMA)
    return tuple(
        records.value_at(path, record, key, kind) for key, kind in (("study", str), ("plan", dict), ("programs", dict))
    )


def run_there(measurement, listed):
    """Runs these cells, one for each run, in a guest, and takes over what it leaves. Where one was there before, it
    goes on from what that left."""
    place_within = measurement.folder.place(FOLDER)
    within = ResultsFolder(place_within) if place_within.exists() else ResultsFolder.create(place_within)
    write_order(measurement, within)
    limit_s = min(MOST_S, sum(measurement.limit_s(cell) for cell in listed) + place.GUEST_START_S)
    name = f"in the guest, {len(listed)} runs: {', '.join(measurement.plan.guest)}"
    log = measurement.folder.place("logs/guest.log")

    def tick():
        measurement.display.advance(note=processes.last_line(log, 70))

    try:
        # The folder is where it runs, since that is what the guest may write to.
        words, whole_s = command_of(measurement, within, limit_s), limit_s + place.GUEST_START_S
        measurement.stage(name, FOLDER, words, whole_s, dict(os.environ), on_tick=tick, directory=within.path)
    finally:
        take_over(measurement, within)


def take_over(measurement, within):
    try:
        found = records.json_object(within.place("results.json"))
    except records.RecordError:
        return  # it did not come so far; why is the stage's failure
    record = measurement.record
    record["runs"] = [run for run in record["runs"] if not run["folder"].startswith(f"{FOLDER}/")]
    record["runs"] += [run | {"folder": f"{FOLDER}/{run['folder']}"} for run in found["runs"]]
    for kind in ("stages", "failures"):
        record[kind] = [one for one in record[kind] if not one["log"].startswith(f"{FOLDER}/")]
        record[kind] += [one | {"log": f"{FOLDER}/{one['log']}"} for one in found[kind]]
    for one in found["failures"]:
        measurement.display.line(f"in the guest: {one['reason']}", style="red")
    record["guest"] = {"machine": found["machine"], "kernel_tcp": found["kernel_tcp"]}
    measurement.save()
