"""scripts/model predict: how long an all-reduce, and a training step with it, should take over described links."""

from dataclasses import dataclass
from pathlib import Path

from gloo_bypass_tools.common.argument_types import numbers_in
from gloo_bypass_tools.common.options import add_number
from gloo_bypass_tools.report import measurements, records
from gloo_bypass_tools.model import buckets, output, overlap, prediction, quantities, ring, schedule, vector

HELP = "time of an all-reduce and of a step"
DESCRIPTION = """T_ar of one all-reduce of S bytes over N ranks, and of a training step's buckets, with one edge of \
the ring slowed down.

  alpha-beta     T = 2(N-1) alpha + (N-1)/N S (2/beta + gamma)
  edge alone     2(N-1)/N S / rate + delay, or twice the delay if that is more and N > 2: what no schedule of a \
ring can beat
  Gloo's ring    segments of at most 1 MiB, at least 2 a rank; iteration i waits for iteration i-2; 2(N-1) m \
iterations for m segments a rank.
                 With one long edge of one-way delay D it makes, in D,
                   2N iterations   where data does not wait for the receive and a send is complete at once  \
(--completion buffered)
                   2 iterations    where data waits for the receiver's notice, as over Gloo's TCP           \
(--completion granted; default)
                   2 iterations    where a send also waits for its acknowledgement                          \
(--completion acknowledged)
                 (the last two: in D and the way back)
  a step         a bucket is reduced when its last gradient is ready, two at a time; T_ar: first bucket ready to last \
one reduced;
                 T_step = forward + backward + what backward does not hide + optimiser

Each --edge-rate-mbit and each --edge-delay-ms is a scenario of its own, on the edge from rank N-1 to rank N-2; with \
both, each pair is one."""
# What the published runs had, as far as they say: see prediction.py.
STUDIES = {"edge-bandwidth": (200.0, 100.0, 50.0), "edge-latency": (100.0, 200.0, 300.0)}


@dataclass(frozen=True)
class Scenario:
    """rate in bytes/s and one-way delay of the slow edge, None: as the others. published_s: its T_ar on the wire, if it
    was published."""

    name: str
    rate: float | None = None
    delay_s: float | None = None
    published_s: float | None = None


@dataclass(frozen=True)
class Row:
    """Seconds. alone_s: of the slow edge; single_s: one all-reduce of everything in Gloo's ring, by completion; line: a
    step's."""

    scenario: Scenario
    alone_s: float
    single_s: dict
    line: overlap.Timeline


def add_options(parser):
    parser.add_argument(
        "--study",
        choices=sorted(STUDIES),
        help="a published study: 4 ranks, DistilGPT2, its edges, its step without limit",
    )
    add_number(parser, "--ranks", int, 2, 1024, "from 2 to 1024 (default 2)")
    vector.add_options(parser)
    links = parser.add_argument_group("links")
    links.add_argument("--fit", type=Path, metavar="FILE", help="alpha, beta and gamma of a file that fit --json wrote")
    links.add_argument("--transport", metavar="NAME", help="with --fit: whose")
    add_number(links, "--alpha-us", float, 0, 1e9, "alpha, microseconds (default 0)", metavar="US")
    beta = "beta, GB/s of each direction (default 3.125: the 25 Gbit/s of the published link check)"
    add_number(links, "--beta-gb-s", float, 1e-9, 1e9, beta, metavar="GB/S")
    sums = "GB/s at which a rank sums: gamma = 1/G (default: at no cost)"
    add_number(links, "--sum-gb-s", float, 1e-6, 1e9, sums, metavar="G")
    rates, delays = numbers_in(float, 1e-6, 1e9), numbers_in(float, 0, 1e9)
    links.add_argument("--edge-rate-mbit", type=rates, metavar="R,R", help="Mbit/s of the slow edge")
    links.add_argument("--edge-delay-ms", type=delays, metavar="D,D", help="its one-way delay, milliseconds")
    way_back = "delay of the way back, of notices and acknowledgements (default 0, as published)"
    add_number(links, "--edge-return-ms", float, 0, 1e9, way_back, default=0.0, metavar="D")
    links.add_argument(
        "--window-bytes",
        type=vector.size_of,
        metavar="W",
        help="at most so much under way on the slow edge: W each delay there and back bounds its rate",
    )
    ranks = parser.add_argument_group("schedule and step")
    ranks.add_argument(
        "--completion",
        choices=schedule.COMPLETIONS,
        default="granted",
        help="of the step's columns (default granted: Gloo's TCP)",
    )
    add_number(ranks, "--threads", int, 1, 64, "all-reduces at once (default 2: c10d's)", default=2)
    for name in ("forward", "backward", "optimizer"):
        add_number(ranks, f"--{name}-s", float, 0, 1e9, f"seconds of {name} (default 0)", metavar="S")


def link_of(options):
    """The unlimited edges' alpha, beta and gamma."""
    given = [name for name in ("alpha_us", "beta_gb_s", "sum_gb_s") if getattr(options, name) is not None]
    if options.fit is None:
        if options.transport:
            options.refuse("--transport belongs to --fit")
        beta = prediction.LINK_CHECK_RATE if options.beta_gb_s is None else 1e9 * options.beta_gb_s
        return ring.Link(1e-6 * (options.alpha_us or 0.0), beta, 1e-9 / options.sum_gb_s if options.sum_gb_s else 0.0)
    if given:
        options.refuse(f"--{given[0].replace('_', '-')} and --fit: one of them says what the links do")
    report = records.benchmark_report(options.fit, "gloo-bypass/model-fit/1")
    fits = {}
    for one in records.value_at(options.fit, report, "fits", list):
        fits.setdefault(records.value_at(options.fit, one, "transport", str), one)
    name = options.transport or (next(iter(fits)) if len(fits) == 1 else None)
    if name not in fits:
        there = ", ".join(fits) or "no fit"
        options.refuse(f"--transport {options.transport or 'is missing'}: {options.fit} has {there}")
    place = f"{options.fit}: {name}"
    intervals = (records.value_at(place, fits[name], key, dict) for key in ("alpha_s", "beta_bytes_s"))
    alpha, beta = (records.number_at(place, one, "value") for one in intervals)
    gamma = records.number_at(place, fits[name], "gamma_s_byte")
    if alpha < 0 or beta <= 0 or gamma < 0:
        raise records.RecordError(f"{place}: alpha and gamma must not be below 0, beta must be above it")
    return ring.Link(alpha, beta, gamma)


def as_in_the_study(options):
    """Whether the settings that the user may change are those of the published runs, so that these compare."""
    own = (options.bits, options.bucket_mb, options.segment_bytes, options.threads, options.edge_return_ms)
    return own == (32, None, 2**20, 2, 0.0)


def take_study(options):
    """Fills in a published study's values where the user gave none. Returns {edge's figure: published T_ar}."""
    given = [name for name in ("forward_s", "backward_s", "optimizer_s") if getattr(options, name) is not None]
    if given:
        options.refuse(f"--{given[0].replace('_', '-')}: the step's times are the study's")
    if options.ranks not in (None, 4):
        options.refuse(f"--ranks {options.ranks}: the study's runs had 4")
    if options.bytes is not None or options.parameters is not None or options.model not in (None, "distilgpt2"):
        options.refuse("--study is of DistilGPT2's gradients")
    options.ranks = 4
    rate = options.study == "edge-bandwidth"
    if rate:
        options.edge_rate_mbit = options.edge_rate_mbit or STUDIES[options.study]
    else:
        options.edge_delay_ms = options.edge_delay_ms or STUDIES[options.study]
    table, unit = ("5.17", "Mbit") if rate else ("5.20", "ms")
    return {
        value: measurements.published(table, options.study, f"{value:g}{unit}", "event_duration", "median")
        for value in STUDIES[options.study]
    }


def unlimited(table, metric):
    """The published median of the run without limit."""
    return measurements.published(table, "edge-bandwidth", "base", metric, "median")


def scenarios_of(options, published):
    found = [Scenario("no limit", published_s=unlimited("5.17", "event_duration") if published else None)]
    for rate in options.edge_rate_mbit or (None,):
        for delay in options.edge_delay_ms or (None,):
            if rate is None and delay is None:
                continue
            given = [(value, unit) for value, unit in ((rate, "Mbit/s"), (delay, "ms")) if value is not None]
            name = ", ".join(f"{value:g} {unit}" for value, unit in given)
            rate_bytes, delay_s = rate and rate * 1e6 / 8, delay and delay * 1e-3
            found.append(Scenario(name, rate_bytes, delay_s, published.get(given[0][0]) if len(given) == 1 else None))
    return found


def edge_of(options, scenario, link):
    """The slow edge as schedule.Edge."""
    delay_s = link.alpha_s + (scenario.delay_s or 0.0)
    back_s = link.alpha_s + (1e-3 * options.edge_return_ms if scenario.delay_s is not None else 0.0)
    rate = min(link.beta, scenario.rate or link.beta)
    if options.window_bytes and scenario.delay_s:
        rate = min(rate, options.window_bytes / (delay_s + back_s))
    return schedule.Edge(rate, delay_s, back_s)


def step_of(options, made, link, published):
    """(overlap.Step, seconds at which each bucket is ready after the first)."""
    if published:
        edges = schedule.ring_of(options.ranks, link.beta, link.alpha_s)
        window_s = max(0.0, unlimited("5.17", "event_duration") - ring_s(options, link, made[-1].size, edges))
        step = overlap.Step(unlimited("5.18", "t_step") - unlimited("5.18", "t_ar"), window_s, 0.0)
        return step, [bucket.ready * window_s for bucket in made]
    backward_s = options.backward_s or 0.0
    # Equal buckets: the first is ready after its own share of backward.
    share = 1 / len(made)
    if options.bytes is None and options.parameters is None:
        share = buckets.first_ready(buckets.MODELS[options.model or "distilgpt2"])
    window_s = backward_s * (1 - share)
    step = overlap.Step((options.forward_s or 0.0) + backward_s - window_s, window_s, options.optimizer_s or 0.0)
    return step, [bucket.ready * window_s for bucket in made]


def ring_s(options, link, size, edges, completion=None):
    """The time of Gloo's ring over these edges."""
    done = completion or options.completion
    return schedule.time_s(size, edges, done, link.gamma, options.segment_bytes, options.bits // 8)


def row_of(options, scenario, made, link, published):
    sizes, edge = [bucket.size for bucket in made], edge_of(options, scenario, link)

    def duration(size, together, completion=None):
        slow = schedule.Edge(edge.rate / together, edge.delay_s, edge.back_s)
        edges = schedule.ring_of(options.ranks, link.beta / together, link.alpha_s, slow)
        return ring_s(options, link, size, edges, completion)

    step, ready = step_of(options, made, link, published)
    line = overlap.timeline(ready, sizes, duration, step, options.threads)
    single_s = {completion: duration(sum(sizes), 1, completion) for completion in schedule.COMPLETIONS}
    return Row(scenario, schedule.perfect_s(sum(sizes), options.ranks, edge), single_s, line)


def all_reduce_table(options, rows, what):
    rings = (f"Gloo's ring, {name}" for name in schedule.COMPLETIONS)
    table = output.table(f"One all-reduce of {what} over {options.ranks} ranks", "<slow edge", "edge alone", *rings)
    for row in rows:
        times = (row.alone_s, *(row.single_s[name] for name in schedule.COMPLETIONS))
        output.add_row(table, row.scenario.name, *map(quantities.seconds, times))
    return table


def step_table(options, rows, made):
    published = any(row.scenario.published_s is not None for row in rows)
    many = "s" if len(made) > 1 else ""
    title = f"A step with {len(made)} bucket{many}, {options.threads} at a time, {options.completion}"
    beside = ["published T_ar", "published / model"] if published else []
    table = output.table(title, "<slow edge", "T_ar", "exposed", "T_step", "OH_ar", *beside)
    for row in rows:
        line, cells = row.line, []
        if published:
            one = row.scenario.published_s
            cells = ["", ""] if one is None else [quantities.seconds(one), f"{one / line.ar_s:.2f}"]
        times = map(quantities.seconds, (line.ar_s, line.exposed_s, line.step_s))
        share = quantities.percent(line.ar_s / line.step_s if line.step_s else 0.0, 1)
        output.add_row(table, row.scenario.name, *times, share, *cells)
    return table


def record_of(options, made, link, rows):
    return {
        "schema": "gloo-bypass/model-predict/1",
        "inputs": vector.as_record(options, made)
        | {"alpha_s": link.alpha_s, "beta_bytes_s": link.beta, "gamma_s_byte": link.gamma}
        | {name: getattr(options, name) for name in ("completion", "threads", "study", "window_bytes")}
        | {"edge_return_s": 1e-3 * options.edge_return_ms},
        "scenarios": [
            {
                "name": row.scenario.name,
                "rate_bytes_s": row.scenario.rate,
                "delay_s": row.scenario.delay_s,
                "edge_alone_s": row.alone_s,
                "ring_s": row.single_s,
                "t_ar_s": row.line.ar_s,
                "exposed_s": row.line.exposed_s,
                "t_step_s": row.line.step_s,
                "published_s": row.scenario.published_s,
                "bucket_spans_s": row.line.spans,
            }
            for row in rows
        ],
    }


def run(options):
    published = take_study(options) if options.study else {}
    options.ranks = options.ranks or 2
    link, made = link_of(options), vector.buckets_of(options)
    size = sum(bucket.size for bucket in made)
    beside = published if as_in_the_study(options) else {}
    rows = [row_of(options, scenario, made, link, published) for scenario in scenarios_of(options, beside)]
    ideal_s = ring.time_s(options.ranks, size, link)
    cut = schedule.cut(size, options.ranks, options.segment_bytes, options.bits // 8)
    alpha, beta = quantities.si(link.alpha_s, "s"), quantities.si(link.beta, "B/s")
    segments = f"{cut.per_rank:,} segments of {cut.segment:,} bytes a rank"
    lines = [
        f"alpha-beta: T = {quantities.seconds(ideal_s)} with alpha {alpha}, beta {beta}, gamma "
        f"{quantities.si(link.gamma, 's/B')}; all at once: {segments}, "
        f"{schedule.iterations(options.ranks, cut.per_rank):,} iterations"
    ]
    if published and not beside:
        lines.append("the published runs had other settings: they are not beside these figures")
    elif published:
        lines.append(
            "published: medians between the markers on the wire; the run without limit gives the computation, "
            "so its ratio is 1 by definition"
        )
    record = record_of(options, made, link, rows) | {"alpha_beta_s": ideal_s, "segments_a_rank": cut.per_rank}
    tables = [all_reduce_table(options, rows, vector.name_of(options)), step_table(options, rows, made)]
    output.finish(options, record, tables, lines)
    return 0
