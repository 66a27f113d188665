"""What the raw files of a run hold over time: each rank's samples, the traffic of each direction, and when the events
were. Pure but for reading.

Seconds since the first rank began. Files of before the probes knew the clock cannot be brought together: there the
samples begin with the first rank, the traffic with the first frame, and `one_clock` is false. A file that is not there
leaves its part out; one that cannot be understood is refused with RecordError.
"""

from dataclasses import dataclass

from gloo_bypass_tools.report.records import RecordError, number_at, value_at
from gloo_bypass_tools.study import reading, training_tables

# Points of a line: more than a picture shows only make it slow to draw.
MOST_POINTS = 240


@dataclass(frozen=True)
class RankTrace:
    """Of one rank. Between the samples at at_s[i] and at_s[i + 1] it used cpu_percent[i] of a core, and sent
    sent_bit_s[i]; None: not counted."""

    rank: int
    at_s: list
    resident_bytes: list
    cpu_percent: list
    sent_bit_s: list
    received_bit_s: list


@dataclass(frozen=True)
class Series:
    """Bytes of each interval; the first one begins at begin_s."""

    begin_s: float
    interval_s: float
    bytes: list

    @property
    def edges_s(self):
        return [self.begin_s + index * self.interval_s for index in range(len(self.bytes) + 1)]

    @property
    def cumulative(self):
        """At each of the edges."""
        sums = [0]
        for one in self.bytes:
            sums.append(sums[-1] + one)
        return sums

    def coarser(self, most=MOST_POINTS):
        """The same with so many intervals at most."""
        group = -(-len(self.bytes) // most) or 1
        sums = [sum(self.bytes[index : index + group]) for index in range(0, len(self.bytes), group)]
        return Series(self.begin_s, self.interval_s * group, sums)


@dataclass(frozen=True)
class RunTrace:
    """`total` and `directions`, by (from, to), are of the capture, as are `events`: (begin, end). None and empty where
    there was none."""

    ranks: list
    total: Series | None
    directions: dict
    events: list
    one_clock: bool


def rate_of(before, after, key, seconds):
    if before.get(key) is None or after.get(key) is None:
        return None
    return (after[key] - before[key]) / seconds


def rank_trace(probe, origin_unix_s):
    began = probe.get("began_unix_s")
    shift = 0.0 if began is None or origin_unix_s is None else began - origin_unix_s
    samples = probe["samples"]
    # Two at one moment would have no rate.
    kept = [one for index, one in enumerate(samples) if index == 0 or one["at_s"] > samples[index - 1]["at_s"]]
    pairs = [(before, after, after["at_s"] - before["at_s"]) for before, after in zip(kept, kept[1:])]

    def bit_s(key):
        return [None if (rate := rate_of(*pair[:2], key, pair[2])) is None else 8 * rate for pair in pairs]

    return RankTrace(
        probe["rank"],
        [one["at_s"] + shift for one in kept],
        [one["resident_bytes"] for one in kept],
        [100 * rate_of(*pair[:2], "cpu_s", pair[2]) for pair in pairs],
        bit_s("sent_bytes"),
        bit_s("received_bytes"),
    )


def series_at(path, record, begin_s):
    found = value_at(path, record, "bytes_by_interval", list)
    if not all(isinstance(one, int) and one >= 0 for one in found):
        raise RecordError(f"{path}: bytes_by_interval is not numbers of 0 or more")
    return Series(begin_s, number_at(path, record, "interval_s"), found)


def trace_of(folder):
    """Of a run's raw folder; directions are of ranks, as r1. None where there is neither sample nor capture."""
    paths = sorted(folder.glob("probe-*.json"), key=lambda path: int(path.stem.partition("-")[2]))
    probes = [reading.probe_of(path, int(path.stem.partition("-")[2])) for path in paths]
    path = folder / "analysis.json"
    capture = reading.capture_of(path) if path.exists() else None
    if not probes and capture is None:
        return None
    clocks = [probe.get("began_unix_s") for probe in probes]
    one_clock = bool(clocks) and None not in clocks
    origin = min(clocks) if one_clock else None
    ranks = [rank_trace(probe, origin) for probe in probes]
    if capture is None or not capture.get("bytes_by_interval"):
        return RunTrace(ranks, None, {}, [], one_clock)
    begin = number_at(path, capture, "first_frame_unix_s") - origin if one_clock else 0.0
    directions = {
        (training_tables.rank_at(one["from"]), training_tables.rank_at(one["to"])): series_at(path, one, begin)
        for one in capture.get("directions_over_time", [])
    }
    events = [
        (begin + step["begin_s"], begin + step["begin_s"] + step["duration_s"])
        for step in value_at(path, capture, "steps", list)
        if step.get("complete")
    ]
    return RunTrace(ranks, series_at(path, capture, begin), directions, events, one_clock)
