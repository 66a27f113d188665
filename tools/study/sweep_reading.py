"""What one run of a sweep left behind. Pure but for reading; errors as reading's: RecordError with file and fault."""

from gloo_bypass_tools.report.records import RecordError, json_object, number_at, value_at
from gloo_bypass_tools.study import cells, reading, sweeps, training, training_reading, transports


def fabric_totals(path):
    """Frames and bytes of all edges together."""
    record = json_object(path)
    if record.get("schema") != reading.FABRIC_SCHEMA:
        raise RecordError(f"{path}: schema {record.get('schema')!r}, not {reading.FABRIC_SCHEMA!r}")
    edges = value_at(path, record, "edges", list)
    found = {
        key: sum(number_at(f"{path}: edges[{index}]", one, key) for index, one in enumerate(edges))
        for key in ("offered", *reading.LOSSES)
    }
    # The kernel's netem counts the bytes that it delivers alone.
    offered = [
        number_at(f"{path}: edges[{index}]", one, "offered_bytes", nullable=True) for index, one in enumerate(edges)
    ]
    return found | {
        "offered_bytes": None if None in offered else sum(offered),
        "lost": sum(found[key] for key in reading.LOSSES),
        "seconds": number_at(path, record, "seconds"),
        "netem": reading.netem_of(record),
    }


def resent(folder, probes, transport):
    """Segments or packets that all ranks sent again, and their time-outs. Over RDMA the device sends again, and counts
    its requests that it began anew: READs for the most part, whose answers are many packets; packets are not known."""
    if transport == "RDMA":
        path = folder / "fabric.json"
        return {
            "retransmitted": None,
            "timeouts": sum(
                number_at(path, one, "completer_retry_err")
                for one in value_at(path, json_object(path), "devices", list)
            ),
        }
    if transports.is_tcp(transport):
        return {
            "retransmitted": sum(probe["tcp"].get("Tcp.RetransSegs", 0) for probe in probes),
            "timeouts": sum(probe["tcp"].get("TcpExt.TCPTimeouts", 0) for probe in probes),
        }
    stats = {path: json_object(path) for path in (folder / f"stats-{probe['rank']}.json" for probe in probes)}
    return {
        "retransmitted": sum(number_at(path, one, "retransmits") for path, one in stats.items()),
        "timeouts": sum(number_at(path, one, "retransmit_timeouts") for path, one in stats.items()),
    }


def reduce_run(folder, plan, point, cell):
    probes = [reading.probe_of(folder / f"probe-{rank}.json", rank) for rank in range(point.ranks)]
    return {
        "times_s": reading.times_of(cells.report_beside(folder), plan.of_reduce(point), cell.transport),
        "fabric": fabric_totals(folder / "fabric.json"),
        "lost_beside": reading.lost_beside(folder / "fabric.json"),
        "ranks": [reading.rank_use(probe) for probe in probes],
        "resent": resent(folder, probes, cell.transport),
    }


def training_run(folder, plan, point, cell):
    """step_slowest_s, ar_slowest_s: of each step the rank that took longest, in order, without warm-up."""
    steps = training.steps_of(plan, point)
    found = training_reading.run_of(folder, plan, point, cell, steps)
    each = steps - plan.warm_up

    def slowest(key):
        return [
            max(one)
            for one in zip(*(found[key][rank * each : (rank + 1) * each] for rank in range(point.ranks)), strict=True)
        ]

    return found | {"step_slowest_s": slowest("t_step_s"), "ar_slowest_s": slowest("t_ar_s")}


def run_of(folder, plan, study, cell):
    """One run's record, as results.json keeps it."""
    point = study.variant(cell.variant)
    if study.workload == sweeps.REDUCE:
        return reduce_run(folder, plan, point, cell)
    return training_run(folder, plan, point, cell)
