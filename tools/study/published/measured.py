"""What was measured here for a published figure, over each transport, in the figure's unit. Pure.

Sources: kept runs of studies, the stored run of techniques at DistilGPT2's size, and benchmarks.py's. A volume of a
larger model is measured with DistilGPT2 and 2 or 4 ranks, and scaled by the bytes and by the formula for the ranks.
"""

import statistics
from dataclasses import dataclass

from gloo_bypass_tools.model import prediction, ring
from gloo_bypass_tools.study import catalogue, definition
from gloo_bypass_tools.study.published import benchmarks, formulas
from gloo_bypass_tools.study.training_tables import flow_label
from gloo_bypass_tools.study.transports import DISTINCT

ALONE = "no network"
COLUMNS = (*DISTINCT, ALONE)


@dataclass(frozen=True)
class Sources:
    """`kept`: {study: its kept runs}; `run`: of benchmarks.py; `sent`: {(transport, point): bytes that a rank sends in
    a step}, of the techniques."""

    kept: dict
    run: benchmarks.Run | None
    sent: dict

    def lines(self, study, **wanted):
        """{transport: values}, of all kept runs of the study, one each."""
        found = {}
        for run in self.kept.get(study, ()):
            there = {}
            for line in run.lines:
                if line.transport in DISTINCT and all(getattr(line, key) == one for key, one in wanted.items()):
                    there.setdefault(line.transport, line.measured)
            for transport, value in there.items():
                found.setdefault(transport, []).append(value)
        return found

    def medians(self, study, **wanted):
        return {transport: statistics.median(values) for transport, values in self.lines(study, **wanted).items()}


def quotients(above, below, factor=1.0):
    return {one: factor * above[one] / below[one] for one in above if below.get(one)}


def owner_of(study):
    """The study here that a study of the thesis belongs to: (its name, the point of its directions or '')."""
    for one in catalogue.STUDIES.values():
        if study in dict(one.flows):
            return one.name, dict(one.flows)[study]
        if one.published_name == study and one.layout == definition.PUBLISHED:
            return one.name, ""
    return None, ""


def label_of(figure, point):
    """Of the variant in a kept run."""
    return flow_label(point, figure.variant) if point else figure.variant


def of_thesis(figure, sources):
    """{transport: values of all kept runs}"""
    if figure.metric == "loop_duration":
        seconds = [row["seconds"] for row in sources.run.loop if row["type"] == figure.variant] if sources.run else []
        return {ALONE: seconds} if seconds else {}
    study, point = owner_of(figure.study)
    wanted = {"table": figure.table, "metric": figure.metric, "statistic": figure.statistic}
    return sources.lines(study, variant=label_of(figure, point), **wanted)


def of_benchmark(figure, sources):
    """In place, as PyTorch's all-reduce."""
    size = formulas.SIZES.fullmatch(figure.variant)
    if not sources.run or "out_of_place" in figure.metric:
        return {}
    if size is None:
        found = {}
        for row in sources.run.all_reduce:
            if row["ranks"] == 2:
                found.setdefault(row["transport"], []).append(row["busbw_gbps"])
        return {transport: statistics.fmean(values) for transport, values in found.items()}
    key = "time_us" if figure.metric.startswith("time_") else "busbw_gbps"
    return {transport: row[key] for transport, row in sources.run.reduced(2, int(size.group(1))).items()}


def of_shared_bus(figure, sources):
    """Beside what was measured, not beside what was expected."""
    if not sources.run or figure.metric != "allreduce_ratio_measured":
        return {}
    four, two = (sources.run.reduced(ranks, benchmarks.RATIO_BYTES) for ranks in (4, 2))
    return {one: four[one]["time_us"] / two[one]["time_us"] for one in four if one in two}


def volume_share(sources, ranks):
    """{transport: bytes on the wire that a rank sends, over S}"""
    wanted = {"variant": f"ws={ranks}", "metric": "bytes_per_event", "statistic": "median"}
    size_mb = prediction.Setting().size / 1e6
    return {one: value / ranks / size_mb for one, value in sources.medians("world-size", **wanted).items()}


def of_volume_ratio(_figure, sources):
    return quotients(volume_share(sources, 4), volume_share(sources, 2))


def of_large_ring(figure, sources):
    ranks = int(formulas.first_number(figure.variant))
    if figure.metric != "volume_per_rank":
        return {}
    return {one: share * formulas.LARGE * 4 / 1e9 for one, share in volume_share(sources, ranks).items()}


def sent(sources, point):
    """{transport: what a rank sends in a step; 2 ranks}"""
    return {transport: value for (transport, name), value in sources.sent.items() if name == point and value}


def of_volume(figure, sources):
    """What two ranks send over what the ring says of them, for eight. Top-k's pairs go to all ranks: (N-1) times."""
    point = {"fp32": "none", "fp16": "bf16", "top 1 %": "topk 1 % in fp16"}.get(figure.variant)
    size, ranks = prediction.Setting().size, formulas.LARGE_RANKS
    for_ranks = ranks - 1 if figure.variant.startswith("top") else ring.rank_bytes(ranks, 1)
    return {one: value / size * for_ranks * formulas.LARGE * 4 / 1e9 for one, value in sent(sources, point).items()}


def of_pairs(_figure, sources):
    return quotients(sent(sources, "bf16"), sent(sources, "topk 1 % in fp16"))


ONE_BUCKET_MB, OF_ITSELF = 328, "25 MB"


def of_buckets(figure, sources):
    """Of sizes in MiB beside the article's in MB; DistilGPT2, 2 ranks. Overlap: the share of T_ar that backward
    hides."""
    if formulas.first_number(figure.variant) > ONE_BUCKET_MB:
        return {}
    point = f"{int(formulas.first_number(figure.variant))}MiB"

    def median(variant, metric):
        return sources.medians("bucket", variant=variant, metric=metric, statistic="median")

    if figure.metric == "step_ratio" and figure.variant != OF_ITSELF:
        return quotients(median(point, "t_step"), median("25MiB", "t_step"))
    if figure.metric == "overlap":
        exposed = quotients(median(point, "t_exposed"), median(point, "t_ar"))
        return {one: 100 * (1 - share) for one, share in exposed.items()}
    return {}


def of_one_rank(figure, sources):
    """By how much PyTorch's DDP of one rank lowers the throughput."""
    if not sources.run or not figure.metric.startswith("overhead"):
        return {}
    plain, ddp = (statistics.median(sources.run.one_rank[name]) for name in ("plain_s", "ddp_s"))
    return {ALONE: 100 * (1 - plain / ddp)}


ARTICLES = {
    formulas.BENCHMARK: of_benchmark,
    "shared bus": of_shared_bus,
    "volume a step": of_volume,
    "volume": of_volume_ratio,
    "70B fp32": of_large_ring,
    "bucket size": of_buckets,
    "top 1 %, 50 ms all-reduce, fp16": of_pairs,
    "one-rank cost": of_one_rank,
}


def of_article(figure, sources):
    """{transport: values}"""
    find = formulas.by_study(ARTICLES, figure.study)
    return {one: [value] for one, value in find(figure, sources).items()} if find else {}
