"""What one run of a cell left behind: the benchmark's times, the trainers' metrics, the capture's analysis, each rank's
probe, the fabric's counters, the transport's counters.

Every reader refuses a file that it does not understand with RecordError, which names the file and what is wrong there.
Pure but for reading.
"""

import statistics

from gloo_bypass_tools.report import records
from gloo_bypass_tools.report.records import RecordError, json_object, number_at, of_schema, value_at
from gloo_bypass_tools.study import definition, rank_probe, transports
from gloo_bypass_tools.study.commands import report_beside
from gloo_bypass_tools.study.plan import slow_edge, steps_of

FABRIC_SCHEMA, CAPTURE_SCHEMA = "gloo-bypass/fabric/1", "gloo-bypass/capture/1"
LOSSES = ("lost_randomly", "lost_in_burst", "lost_in_queue", "lost_while_down")
# Of a host's port; what is lost there crossed no edge, and no link was to lose it.
LOST_BESIDE = ("missed", "no_memory", "queue_full")
ADDRESSES_FROM = 2  # rank r of a described fabric has the network's address .(2 + r)


def times_of(path, plan, transport):
    """Seconds of each timed all-reduce, of its slowest rank. RecordError where the results were wrong."""
    report = records.benchmark_report(path)
    of_size = [one for one in value_at(path, report, "results", list) if one.get("size") == plan.bytes]
    results = [one for result in of_size for one in value_at(path, result, "transports", list)]
    ranks = len(value_at(path, report, "ranks", list))
    if ranks != plan.ranks or len(results) != 1 or results[0].get("transport") != transports.kind_of(transport):
        raise RecordError(f"{path}: not {plan.ranks} ranks, {plan.bytes} bytes over {transport} alone")
    wrong = number_at(path, results[0], "wrong", nullable=True)
    if wrong != 0:
        fault = "nothing was checked" if wrong is None else f"{wrong} elements of the all-reduce are wrong"
        raise RecordError(f"{path}: {fault}")
    times = value_at(path, results[0], "round_slowest_us", list)
    if len(times) != plan.rounds or not all(isinstance(one, (int, float)) and one > 0 for one in times):
        raise RecordError(f"{path}: round_slowest_us is not {plan.rounds} times above 0")
    return [one * 1e-6 for one in times]


def edges_of(path, record):
    """(where it stands, the edge) of each of the fabric's."""
    return [(f"{path}: edges[{index}]", one) for index, one in enumerate(value_at(path, record, "edges", list))]


def slow_fabric(path, plan):
    """What crossed the slow edge, and bytes of every edge from one rank to the next on the ring and back."""
    record = of_schema(path, FABRIC_SCHEMA)
    start, end = (f"r{rank}" for rank in slow_edge(plan.ranks))
    edges = []
    for place, one in edges_of(path, record):
        edge = {key: value_at(place, one, key, str) for key in ("from", "to")}
        edge |= {key: number_at(place, one, key) for key in ("offered", "delivered", "delivered_bytes", *LOSSES)}
        # The kernel's netem does not count these.
        uncounted = ("offered_bytes", "mean_delay_ms", "max_queue_bytes")
        edge |= {key: number_at(place, one, key, nullable=True) for key in uncounted}
        edges.append(edge | {"lost": sum(edge[key] for key in LOSSES)})
    slow = [edge for edge in edges if (edge["from"], edge["to"]) == (start, end)]
    if not slow:
        raise RecordError(f"{path}: nothing crossed the edge from {start} to {end}")
    return {
        "slow": slow[-1],
        "edges": edges,
        "late_p99_us": record.get("late_us", {}).get("p99"),
        "netem": netem_of(record),
        "seconds": number_at(path, record, "seconds"),
    }


def equal_fabric(path):
    """Frames and bytes of all edges together."""
    record = of_schema(path, FABRIC_SCHEMA)
    edges = edges_of(path, record)
    found = {key: sum(number_at(place, one, key) for place, one in edges) for key in ("offered", *LOSSES)}
    # The kernel's netem counts the bytes that it delivers alone.
    offered = [number_at(place, one, "offered_bytes", nullable=True) for place, one in edges]
    return found | {
        "offered_bytes": None if None in offered else sum(offered),
        "lost": sum(found[key] for key in LOSSES),
        "seconds": number_at(path, record, "seconds"),
        "netem": netem_of(record),
    }


def lost_beside(path):
    """Frames that the fabric, or the kernel in its place, lost beside the edges: it had too little processor time or
    memory. What is sent again for them is none of the link's losses."""
    record = json_object(path)
    hosts = [host for host in record.get("hosts", []) if isinstance(host, dict)]
    return sum(one.get(key) or 0 for one in (record, *hosts) for key in LOST_BESIDE)


def netem_of(record):
    """Where the kernel's netem made the links, in words; None where the fabric's switch did."""
    return f"Linux {record.get('kernel')} on {record.get('processor')}" if record.get("links") == "netem" else None


def probe_of(path, rank):
    record = json_object(path)
    if record.get("schema") != rank_probe.SCHEMA or record.get("rank") != rank:
        raise RecordError(f"{path}: not the probe of rank {rank}")
    samples = value_at(path, record, "samples", list)
    for index, sample in enumerate(samples):
        for key in ("at_s", "cpu_s", "resident_bytes"):
            number_at(f"{path}: samples[{index}]", sample, key)
    return record


def rank_use(probe):
    """A rank's CPU in per cent of a core and its memory at most."""
    samples, cpu_percent = probe["samples"], None
    if len(samples) > 1:
        cpu_s, seconds = (samples[-1][key] - samples[0][key] for key in ("cpu_s", "at_s"))
        cpu_percent = 100 * cpu_s / max(1e-9, seconds)
    peak_bytes = max((one["resident_bytes"] for one in samples), default=None)
    return {"rank": probe["rank"], "cpu_percent": cpu_percent, "peak_bytes": peak_bytes}


def tcp_of(probe, plan):
    """Of the sender on the slow edge: what its connection to the next rank looked like; None before it was seen."""
    _, end = slow_edge(plan.ranks)
    address_end = f".{ADDRESSES_FROM + end}"
    seen = [
        one
        for sample in probe["samples"]
        for one in sample.get("connections", ())
        if one["peer"].rpartition(":")[0].endswith(address_end) and one.get("bytes_sent", 0) > 0
    ]
    if not seen:
        return None
    windows = sorted(one["cwnd"] for one in seen if "cwnd" in one)
    last = seen[-1]
    return {
        "control": last["control"],
        "mss": last.get("mss"),
        "cwnd_median": statistics.median(windows) if windows else None,
        "cwnd_max": windows[-1] if windows else None,
        "rtt_ms": last.get("rtt_ms"),
        "bytes_sent": last.get("bytes_sent"),
        "bytes_retransmitted": max(one.get("bytes_retrans", 0) for one in seen),
        "retransmitted": max(one.get("retrans", 0) for one in seen),
        "timeouts": probe["tcp"].get("TcpExt.TCPTimeouts"),
        "probes": probe["tcp"].get("TcpExt.TCPLossProbes"),
    }


def bypass_of(path, plan):
    """Of the sender on the slow edge: its channel to the next rank, from the transport's counters."""
    _, end = slow_edge(plan.ranks)
    record = json_object(path)
    channels = [one for one in record.get("open_channels", []) if one.get("peer_rank") == end]
    # Channels that are closed at exit are in the sums alone.
    one = max(channels, key=lambda each: each.get("wire_bytes_sent", 0)) if channels else record
    return {
        "window_bytes": one.get("congestion_window_bytes"),
        "rtt_ms": one["smoothed_rtt_us"] * 1e-3 if "smoothed_rtt_us" in one else None,
        "retransmitted": number_at(path, one, "retransmits"),
        "timeouts": number_at(path, one, "retransmit_timeouts"),
        "probes": number_at(path, one, "tail_loss_probes"),
        "packets_sent": number_at(path, one, "packets_sent"),
        "repair_frames": one.get("repair_frames_sent"),
        "of_channel": bool(channels),
    }


def rdma_of(path, plan):
    """Of the two devices at the slow edge, from the kernel's counters: a READ is begun again by whoever asked for
    it."""
    names = {f"r{rank}" for rank in slow_edge(plan.ranks)}
    devices = [one for one in value_at(path, json_object(path), "devices", list) if one.get("host") in names]
    if len(devices) != len(names):
        raise RecordError(f"{path}: no counters of the RDMA devices of {' and '.join(sorted(names))}")
    return {
        "control": "SoftRoCE",
        **dict.fromkeys(("window_bytes", "rtt_ms", "retransmitted", "probes")),
        "of_channel": False,
        "timeouts": sum(number_at(path, one, "completer_retry_err") for one in devices),
        "packets_sent": number_at(path, devices[-1], "sent_pkts"),
    }


def resent_of(folder, probes, transport):
    """Segments or packets that all ranks sent again, and their time-outs. Over RDMA the device sends again, and counts
    its requests that it began anew: READs for the most part, whose answers are many packets; packets are not known."""
    if transport == "RDMA":
        path = folder / "fabric.json"
        devices = value_at(path, json_object(path), "devices", list)
        again, timeouts = None, sum(number_at(path, one, "completer_retry_err") for one in devices)
    elif transports.is_tcp(transport):
        names = ("Tcp.RetransSegs", "TcpExt.TCPTimeouts")
        again, timeouts = (sum(probe["tcp"].get(name, 0) for probe in probes) for name in names)
    else:
        stats = [(path, json_object(path)) for path in (folder / f"stats-{probe['rank']}.json" for probe in probes)]
        names = ("retransmits", "retransmit_timeouts")
        again, timeouts = (sum(number_at(path, one, name) for path, one in stats) for name in names)
    return {"retransmitted": again, "timeouts": timeouts}


def slow_edge_run(folder, plan, cell, probes):
    """`tcp`, `bypass`: what the sender on the slow edge says, over either."""
    (start, _), path, tcp, bypass = slow_edge(plan.ranks), folder / "fabric.json", None, None
    if transports.is_tcp(cell.transport):
        tcp = tcp_of(probes[start], plan)
    elif cell.transport == "RDMA":
        bypass = rdma_of(path, plan)
    else:
        bypass = bypass_of(folder / f"stats-{start}.json", plan)
    return {"fabric": slow_fabric(path, plan), "tcp": tcp, "bypass": bypass}


def equal_run(folder, cell, probes):
    return {"fabric": equal_fabric(folder / "fabric.json"), "resent": resent_of(folder, probes, cell.transport)}


def capture_of(path):
    """The one capture of an analysis."""
    listed = value_at(path, of_schema(path, CAPTURE_SCHEMA), "captures", list)
    if len(listed) != 1:
        raise RecordError(f"{path}: {len(listed)} captures, not 1")
    return listed[0]


def analysis_of(path, steps):
    """Of the capture: bytes and time of each event, warm-up's too, totals, the matrix before and in training."""
    one = capture_of(path)
    events = [event for event in value_at(path, one, "steps", list) if event.get("complete")]
    if len(events) != steps:
        raise RecordError(f"{path}: {len(events)} whole events between markers, not {steps}")
    matrix, directions = value_at(path, one, "matrix", dict), value_at(path, one, "directions", list)
    figures = {"bytes": "bytes", "seconds": "duration_s"}
    edges = {phase: matrix[phase]["directions"] for phase in ("before", "training", "after")}
    return {
        "events": [{name: number_at(path, event, key) for name, key in figures.items()} for event in events],
        "total_bytes": number_at(path, one, "bytes"),
        "total_s": number_at(path, one, "duration_s"),
        "directions": [some_of(edge, "from", "to", "th_avg_bit_s", "per_step") for edge in directions],
        "matrix": {phase: [some_of(edge, "from", "to", "bytes") for edge in listed] for phase, listed in edges.items()},
        "faults": one.get("faults", []),
        "bytes_by_kind": one.get("bytes_by_kind", {}),
    }


def some_of(record, *keys):
    return {key: record[key] for key in keys}


def check_capture(path, fabric):
    """RecordError where frames are not in the capture: what is counted of it would be too little."""
    capture = fabric.get("capture") or {}
    lost, failure = capture.get("lost", 0), capture.get("failure")
    if failure:
        raise RecordError(f"{path}: the run's capture ended early: {failure}; {lost} frames are not in it")
    if lost:
        raise RecordError(
            f"{path}: {lost} frames are not in the run's capture, the disk was too slow: measure into "
            "a folder on a faster one, with --output"
        )


def slowest_of(seconds, each):
    """Of each step the rank that took longest; `seconds`: so many of each rank, one rank after another."""
    ranks = [seconds[begin : begin + each] for begin in range(0, len(seconds), each)]
    return [max(one) for one in zip(*ranks, strict=True)]


def training_run(folder, plan, point, transport):
    """Times are of the steps after warm-up."""
    found, digests = [], set()
    for rank in range(point.ranks):
        path = folder / f"metrics-{rank}.jsonl"
        rows, run = records.read_training(path, transports.kind_of(transport), 1, plan.warm_up)
        found += [row for row in rows if not row["warm_up"]]
        digests.add(run["sha256"])
    if len(digests) != 1:
        raise RecordError(f"{folder}: the ranks ended with different parameters")
    fabric = json_object(folder / "fabric.json")
    check_capture(folder / "fabric.json", fabric)
    steps = steps_of(plan, point)
    step_s, reduce_s, exposed_s = ([row[key] for row in found] for key in ("step_s", "all_reduce_s", "exposed_s"))
    return {
        "t_step_s": step_s,
        "t_ar_s": reduce_s,
        "t_exposed_s": exposed_s,
        "step_slowest_s": slowest_of(step_s, steps - plan.warm_up),
        "ar_slowest_s": slowest_of(reduce_s, steps - plan.warm_up),
        "loss": statistics.mean(row["loss"] for row in found),
        "sha256": digests.pop(),
        "capture": analysis_of(folder / "analysis.json", steps),
        "netem": netem_of(fabric),
        "fabric_s": number_at(folder / "fabric.json", fabric, "seconds"),
        "lost_frames": sum(sum(edge.get(key, 0) for key in LOSSES) for edge in fabric.get("edges", [])),
    }


def run_of(folder, plan, study, cell):
    """One run's record, as results.json keeps it."""
    point, path = study.variant(cell.variant), folder / "fabric.json"
    of_one = plan.at(point)
    probes = [probe_of(folder / f"probe-{rank}.json", rank) for rank in range(of_one.ranks)]
    if study.workload == definition.TRAIN:
        found = training_run(folder, plan, point, cell.transport)
    else:
        found = {"times_s": times_of(report_beside(folder), of_one, cell.transport)}
        found |= slow_edge_run(folder, of_one, cell, probes) if cell.segment else equal_run(folder, cell, probes)
    return found | {"lost_beside": lost_beside(path), "ranks": [rank_use(probe) for probe in probes]}
