"""What one run of a cell left behind: the benchmark's times, each rank's probe, the fabric's counters, DPDK's counters.

Every reader refuses a file that it does not understand with RecordError, which names the file and what is wrong there.
Pure but for reading.
"""

from gloo_bypass_tools.report import records
from gloo_bypass_tools.report.records import RecordError, json_object, number_at, value_at
from gloo_bypass_tools.study import cells, rank_probe, transports

FABRIC_SCHEMA = "gloo-bypass/fabric/1"
LOSSES = ("lost_randomly", "lost_in_burst", "lost_in_queue", "lost_while_down")
# Of a host's port; what is lost there crossed no edge, and no link was to lose it.
LOST_BESIDE = ("missed", "no_memory", "queue_full")
ADDRESSES_FROM = 2  # rank r of a described fabric has the network's address .(2 + r)


def times_of(path, plan, transport):
    """Seconds of each timed all-reduce, of its slowest rank. RecordError where the results were wrong."""
    report = records.benchmark_report(path)
    results = [
        one
        for result in value_at(path, report, "results", list)
        for one in value_at(path, result, "transports", list)
        if result.get("size") == plan.bytes
    ]
    ranks = len(value_at(path, report, "ranks", list))
    if ranks != plan.ranks or len(results) != 1 or results[0].get("transport") != transports.kind_of(transport):
        raise RecordError(f"{path}: not {plan.ranks} ranks, {plan.bytes} bytes over {transport} alone")
    wrong = number_at(path, results[0], "wrong", nullable=True)
    if wrong != 0:
        raise RecordError(
            f"{path}: {'nothing was checked' if wrong is None else f'{wrong} elements of the all-reduce are wrong'}"
        )
    times = value_at(path, results[0], "round_slowest_us", list)
    if len(times) != plan.rounds or not all(isinstance(one, (int, float)) and one > 0 for one in times):
        raise RecordError(f"{path}: round_slowest_us is not {plan.rounds} times above 0")
    return [one * 1e-6 for one in times]


def fabric_of(path, plan):
    """What crossed the slow edge, and bytes of every edge from one rank to the next on the ring and back."""
    record = json_object(path)
    if record.get("schema") != FABRIC_SCHEMA:
        raise RecordError(f"{path}: schema {record.get('schema')!r}, not {FABRIC_SCHEMA!r}")
    start, end = (f"r{rank}" for rank in cells.slow_edge(plan.ranks))
    edges, slow = [], None
    for index, one in enumerate(value_at(path, record, "edges", list)):
        place = f"{path}: edges[{index}]"
        edge = {"from": value_at(place, one, "from", str), "to": value_at(place, one, "to", str)}
        edge |= {key: number_at(place, one, key) for key in ("offered", "delivered", "delivered_bytes", *LOSSES)}
        # The kernel's netem does not count these.
        edge |= {
            key: number_at(place, one, key, nullable=True)
            for key in ("offered_bytes", "mean_delay_ms", "max_queue_bytes")
        }
        edge["lost"] = sum(edge[key] for key in LOSSES)
        edges.append(edge)
        if (edge["from"], edge["to"]) == (start, end):
            slow = edge
    if slow is None:
        raise RecordError(f"{path}: nothing crossed the edge from {start} to {end}")
    late = record.get("late_us", {})
    return {
        "slow": slow,
        "edges": edges,
        "late_p99_us": late.get("p99"),
        "netem": netem_of(record),
        "seconds": number_at(path, record, "seconds"),
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
    samples = probe["samples"]
    if len(samples) < 2:
        return {
            "rank": probe["rank"],
            "cpu_percent": None,
            "peak_bytes": max((one["resident_bytes"] for one in samples), default=None),
        }
    first, last = samples[0], samples[-1]
    return {
        "rank": probe["rank"],
        "cpu_percent": 100 * (last["cpu_s"] - first["cpu_s"]) / max(1e-9, last["at_s"] - first["at_s"]),
        "peak_bytes": max(one["resident_bytes"] for one in samples),
    }


def tcp_of(probe, plan):
    """Of the sender on the slow edge: what its connection to the next rank looked like; None before it was seen."""
    _, end = cells.slow_edge(plan.ranks)
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
        "cwnd_median": windows[len(windows) // 2] if windows else None,
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
    _, end = cells.slow_edge(plan.ranks)
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
    names = {f"r{rank}" for rank in cells.slow_edge(plan.ranks)}
    devices = [one for one in value_at(path, json_object(path), "devices", list) if one.get("host") in names]
    if len(devices) != len(names):
        raise RecordError(f"{path}: no counters of the RDMA devices of {' and '.join(sorted(names))}")
    return {
        "control": "SoftRoCE",
        "window_bytes": None,
        "rtt_ms": None,
        "retransmitted": None,
        "probes": None,
        "of_channel": False,
        "timeouts": sum(number_at(path, one, "completer_retry_err") for one in devices),
        "packets_sent": number_at(path, devices[-1], "sent_pkts"),
    }


def sender_of(folder, plan, cell, rank):
    """What a bypass transport says of the sender on the slow edge; None over TCP."""
    if transports.is_tcp(cell.transport):
        return None
    return (
        rdma_of(folder / "fabric.json", plan)
        if cell.transport == "RDMA"
        else bypass_of(folder / f"stats-{rank}.json", plan)
    )


def run_of(folder, perf, plan, cell):
    """One run's record, as results.json keeps it."""
    start, _ = cells.slow_edge(plan.ranks)
    probes = [probe_of(folder / f"probe-{rank}.json", rank) for rank in range(plan.ranks)]
    return {
        "times_s": times_of(perf, plan, cell.transport),
        "fabric": fabric_of(folder / "fabric.json", plan),
        "lost_beside": lost_beside(folder / "fabric.json"),
        "ranks": [rank_use(probe) for probe in probes],
        "tcp": tcp_of(probes[start], plan) if transports.is_tcp(cell.transport) else None,
        "bypass": sender_of(folder, plan, cell, start),
    }
