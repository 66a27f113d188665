"""What one run of training left behind: the trainers' metrics, the capture's analysis, each rank's probe. Pure but for
reading."""

import statistics

from gloo_bypass_tools.report import records
from gloo_bypass_tools.report.records import RecordError, json_object, number_at, value_at
from gloo_bypass_tools.study import reading, transports

CAPTURE_SCHEMA = "gloo-bypass/capture/1"
STEP_FIELDS = {"t_step": "step_s", "t_ar": "all_reduce_s"}


def analysis_of(path, steps):
    """Of the capture: bytes, time and throughput of each event after warm-up, totals, the matrix before and in
    training."""
    record = json_object(path)
    if record.get("schema") != CAPTURE_SCHEMA:
        raise RecordError(f"{path}: schema {record.get('schema')!r}, not {CAPTURE_SCHEMA!r}")
    listed = value_at(path, record, "captures", list)
    if len(listed) != 1:
        raise RecordError(f"{path}: {len(listed)} captures, not 1")
    one = listed[0]
    events = [event for event in value_at(path, one, "steps", list) if event.get("complete")]
    if len(events) != steps:
        raise RecordError(f"{path}: {len(events)} whole events between markers, not {steps}")
    matrix = value_at(path, one, "matrix", dict)
    return {
        "events": [
            {"bytes": number_at(path, event, "bytes"), "seconds": number_at(path, event, "duration_s")}
            for event in events
        ],
        "total_bytes": number_at(path, one, "bytes"),
        "total_s": number_at(path, one, "duration_s"),
        "directions": [
            {key: edge[key] for key in ("from", "to", "th_avg_bit_s", "per_step")}
            for edge in value_at(path, one, "directions", list)
        ],
        "matrix": {
            phase: [{key: edge[key] for key in ("from", "to", "bytes")} for edge in matrix[phase]["directions"]]
            for phase in ("before", "training", "after")
        },
        "faults": one.get("faults", []),
        "bytes_by_kind": one.get("bytes_by_kind", {}),
    }


def check_capture(path, fabric):
    """RecordError where frames are not in the capture: what is counted of it would be too little."""
    lost = (fabric.get("capture") or {}).get("lost", 0)
    if lost:
        raise RecordError(
            f"{path}: {lost} frames are not in the run's capture, the disk was too slow: measure into "
            "a folder on a faster one, with --output"
        )


def run_of(folder, plan, variant, cell, steps):
    """One run's record, as results.json keeps it."""
    found, digests = [], set()
    for rank in range(variant.ranks):
        rows, run = records.read_training(
            folder / f"metrics-{rank}.jsonl", transports.kind_of(cell.transport), 1, plan.warm_up
        )
        found += [row for row in rows if not row["warm_up"]]
        digests.add(run["sha256"])
    if len(digests) != 1:
        raise RecordError(f"{folder}: the ranks ended with different parameters")
    lossy = json_object(folder / "fabric.json")
    check_capture(folder / "fabric.json", lossy)
    analysis = analysis_of(folder / "analysis.json", steps)
    return {
        "t_step_s": [row["step_s"] for row in found],
        "t_ar_s": [row["all_reduce_s"] for row in found],
        "t_exposed_s": [row["exposed_s"] for row in found],
        "loss": statistics.mean(row["loss"] for row in found),
        "sha256": digests.pop(),
        "capture": analysis,
        "netem": reading.netem_of(lossy),
        "lost_beside": reading.lost_beside(folder / "fabric.json"),
        "lost_frames": sum(sum(edge.get(key, 0) for key in reading.LOSSES) for edge in lossy.get("edges", [])),
        "ranks": [
            reading.rank_use(reading.probe_of(folder / f"probe-{rank}.json", rank)) for rank in range(variant.ranks)
        ],
    }
