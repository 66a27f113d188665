"""scripts/model fit: alpha and beta from what all_reduce_perf measured."""

import math
import statistics
from dataclasses import asdict, astuple
from pathlib import Path

from gloo_bypass_tools.common.options import add_number
from gloo_bypass_tools.common.transports import OWN_SUFFIX
from gloo_bypass_tools.model import output, quantities, ring, vector

HELP = "alpha and beta from all_reduce_perf's JSON"
DESCRIPTION = """alpha and beta of each transport from files of all_reduce_perf --json (rings only: Gloo's, \
UDP/own:ring), by least squares of the relative error.

  T = 2 (N-1) alpha + (N-1)/N S (2/beta + gamma)

  alpha  seconds of a round whatever its size   beta  bytes/s of a rank's link, each direction   gamma  seconds to sum \
a byte

The median time (p50) of each size is fitted, with Huber's weights; intervals are of 95 %, from 1,000 bootstraps of \
the residuals. gamma
and 2/beta have the same factor in the ring, whatever N and S: measurements do not tell them apart. Without --sum-gb-s \
beta contains the
sums. Files of several N are fitted together, and each N apart: if those agree, one alpha and one beta explain all."""


def add_options(parser):
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="of all_reduce_perf --json; or a folder of scripts/compare"
    )
    parser.add_argument(
        "--transport", action="append", metavar="NAME", help="fit this one only; may be given several times"
    )
    rate = "GB/s at which a rank sums: gamma = 1/G; from 0.001 to 1e6"
    add_number(parser, "--sum-gb-s", float, 0.001, 1e6, rate, metavar="G")
    parser.add_argument(
        "--min-bytes", type=vector.size_of, default=4, metavar="B", help="leave out smaller sizes (default 4)"
    )
    parser.add_argument(
        "--max-bytes", type=vector.size_of, default=vector.MAX_BYTES, metavar="B", help="leave out larger sizes"
    )
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw times, fit and residuals")


def reports_of(path):
    """A report, or those in a folder of scripts/compare."""
    if not path.is_dir():
        return [path]
    from gloo_bypass_tools.report.records import RecordError

    found = sorted((path / "raw").glob("all-reduce-*.json"))
    if not found:
        raise RecordError(f"{path}: no results of scripts/compare: it has no raw/all-reduce-*.json")
    return found


def check_ring(place, row):
    """FitError unless the row is of a ring. `algorithm` is Gloo's: our own collectives have theirs in the name."""
    from gloo_bypass_tools.model.fitting import FitError

    name, own, chosen = row["transport"].partition(OWN_SUFFIX)
    if own and chosen != ":ring":
        raise FitError(
            f"{place}: {row['transport']} is not {name}{OWN_SUFFIX}:ring: the model is of the ring; choose others with "
            "--transport"
        )
    if not own and row["algorithm"] != "ring":
        raise FitError(f"{place}: measured with --algorithm {row['algorithm']}: the model is of the ring")


def points_of(options):
    """Transport -> [Point], of all files."""
    from gloo_bypass_tools.report import records

    from gloo_bypass_tools.model.fitting import FitError, Point

    found = {}
    for place in (place for path in options.files for place in reports_of(path)):
        for row in records.read_all_reduce(place):
            if row["wrong"]:
                raise FitError(
                    f"{place}: {row['wrong']:,} elements of {row['bytes']:,} bytes were wrong: measure again"
                )
            if not options.transport or row["transport"] in options.transport:
                check_ring(place, row)
            if options.min_bytes <= row["bytes"] <= options.max_bytes:
                found.setdefault(row["transport"], []).append(Point(row["ranks"], row["bytes"], row["p50_us"] * 1e-6))
    if not found:
        raise FitError(f"the files have no size from {options.min_bytes:,} to {options.max_bytes:,} bytes")
    for name in options.transport or ():
        if name not in found:
            raise FitError(f"--transport {name}: not in these files, which have {', '.join(found) or 'nothing'}")
    # In one order, whatever that of the files is: the bootstrap draws by place.
    return {
        name: sorted(points, key=astuple)
        for name, points in found.items()
        if not options.transport or name in options.transport
    }


def range_text(interval, unit):
    high = "more" if interval.high == float("inf") else quantities.si(interval.high, unit)
    return f"{quantities.si(interval.low, unit)} to {high}"


def row_of(name, ranks, fit):
    sizes = {point.size for point in fit.points}
    return (
        name,
        ranks,
        len(sizes),
        quantities.si(fit.alpha_s.value, "s"),
        range_text(fit.alpha_s, "s"),
        quantities.si(fit.beta.value, "B/s"),
        range_text(fit.beta, "B/s"),
        quantities.percent(fit.rms, 1),
        f"{100 * fit.worst:+.0f} %",
    )


def fit_all(found, gamma):
    """[(transport, ranks as text, Fit)]: joint first, then each N where there are several with enough sizes."""
    from gloo_bypass_tools.model import fitting

    made = []
    for name, points in found.items():
        try:
            split = fitting.by_ranks(points)
            made.append((name, "+".join(map(str, split)), fitting.fit(points, gamma)))
            if len(split) > 1:
                made += [
                    (name, str(ranks), fitting.fit(part, gamma))
                    for ranks, part in split.items()
                    if len({point.size for point in part}) >= fitting.MIN_SIZES
                ]
        except fitting.FitError as error:
            raise fitting.FitError(f"{name}: {error}") from error
    return made


CHANGES_WITH_RANKS = (
    "alpha and beta change with N: the ranks share a processor, memory or a link, which the model gives each its own"
)


def joint_lines(made):
    """Whether one alpha and one beta explain all N."""
    lines = []
    for name, ranks, fit in made:
        if "+" not in ranks:
            continue
        apart = [other for other_name, other_ranks, other in made if other_name == name and other_ranks != ranks]
        residuals = [residual for other in apart for residual in other.residuals]
        if not residuals:
            continue
        alone = math.sqrt(statistics.fmean(residual**2 for residual in residuals))
        verdict = "one alpha and one beta explain all N" if fit.rms < 1.5 * alone + 0.01 else CHANGES_WITH_RANKS
        together, each = quantities.percent(fit.rms, 1), quantities.percent(alone, 1)
        lines.append(f"{name}: off by {together} together, {each} each N apart: {verdict}")
    return lines


def as_record(name, ranks, fit):
    def interval(one):
        return asdict(one) | {"high": None if one.high == float("inf") else one.high}

    return {
        "transport": name,
        "ranks": [int(one) for one in ranks.split("+")],
        "alpha_s": interval(fit.alpha_s),
        "beta_bytes_s": interval(fit.beta),
        "gamma_s_byte": fit.gamma,
        "rms": fit.rms,
        "worst": fit.worst,
        "points": [
            asdict(point) | {"fitted_s": ring.time_s(point.ranks, point.size, fit.link), "residual": residual}
            for point, residual in zip(fit.points, fit.residuals)
        ],
    }


def residual_table(joint):
    """Measured over fitted less 1, by size, a column for each transport and N."""
    names = [(name, ranks) for name, fit in joint.items() for ranks in sorted({point.ranks for point in fit.points})]
    table = output.table("Measured against fitted", "size", *(f"{name}, N = {ranks}" for name, ranks in names))
    cells = {}
    for name, fit in joint.items():
        for point, residual in zip(fit.points, fit.residuals):
            said = f"{quantities.si(point.seconds, 's')} {100 * residual:+.0f} %"
            cells.setdefault(point.size, {}).setdefault((name, point.ranks), []).append(said)
    for size in sorted(cells):
        output.add_row(table, f"{size:,}", *(", ".join(cells[size].get(key, [""])) for key in names))
    return table


def run(options):
    gamma = 0.0 if options.sum_gb_s is None else 1e-9 / options.sum_gb_s
    made = fit_all(points_of(options), gamma)
    joint = {}
    for name, _, fit in made:
        joint.setdefault(name, fit)
    columns = ("<transport", "N", "sizes", "alpha", "95 %", "beta", "95 %", "rms off", "worst")
    table = output.table("T = 2(N-1) alpha + (N-1)/N S (2/beta + gamma)", *columns)
    for name, ranks, fit in made:
        output.add_row(table, *row_of(name, ranks, fit))
    said = "beta contains the sums (gamma = 0)" if gamma == 0 else f"gamma = 1/{options.sum_gb_s:g} GB/s as given"
    halves = (
        f"{name}, N = {ranks}: half of the time is latency at {quantities.si(ring.half_size(ranks, fit.link), 'B')}"
        for name, fit in joint.items()
        for ranks in sorted({point.ranks for point in fit.points})
    )
    lines = ["; ".join([said, *halves]), *joint_lines(made)]
    if options.plot:
        output.write_file(options.plot, output.drawing().fits(joint))
        lines.append(f"Plot: {options.plot}")
    record = {
        "schema": "gloo-bypass/model-fit/1",
        "inputs": {"files": [str(path) for path in options.files], "gamma_s_byte": gamma},
        "fits": [as_record(*one) for one in made],
    }
    output.finish(options, record, [table, residual_table(joint)], lines)
    return 0
