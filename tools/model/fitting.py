"""alpha and beta from measured times of a ring all-reduce, by least squares of the relative error: of the logarithms,
so that twice as long and half as long count the same. Pure; numpy.

T = 2 (N-1) alpha + (N-1)/N S (2/beta + gamma) has two parameters: gamma and 2/beta have the same factor, whatever
N and S: no measurement of the ring alone tells them apart. So gamma is given, or beta is an effective one that contains
the sums. A size whose time stands out (a change of protocol, another program's turn) weighs less: Huber's weights. The
intervals are from a bootstrap: relative residuals, drawn anew with a fixed seed, on the fitted times.
"""

from dataclasses import dataclass

import numpy as np

from gloo_bypass_tools.common.failures import BAD_INPUT, Failure
from gloo_bypass_tools.model import ring

MIN_SIZES = 3
BOOTSTRAPS, SEED = 1000, 20260101
STEPS = 60  # of Gauss-Newton; it has settled after some twenty
RIDGE = 1e-9  # keeps the step finite if the measured times show only one of the two parts
LEAST_LOG = -46.0  # 1e-20 seconds
LEAST_SHARE = 0.01  # of some time that transfer must take for a bandwidth to be found
HUBER = 1.345  # 95 % of least squares' efficiency where noise is Gaussian
CONFIDENCE = 0.95


class FitError(Failure):
    """These times cannot be fitted."""

    status = BAD_INPUT


@dataclass(frozen=True)
class Point:
    ranks: int
    size: int
    seconds: float


@dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Fit:
    """alpha_s, beta: with 95 % intervals. beta's upper end is infinite where bytes cost nothing measurable. residuals:
    measured over fitted, less 1, point by point; rms: of their logarithms."""

    alpha_s: Interval
    beta: Interval
    gamma: float
    points: tuple
    residuals: tuple

    @property
    def link(self):
        return ring.Link(self.alpha_s.value, self.beta.value, self.gamma)

    @property
    def rms(self):
        return float(np.sqrt(np.mean(np.square(np.log1p(self.residuals)))))

    @property
    def worst(self):
        return max(self.residuals, key=lambda value: abs(np.log1p(value)))


def columns(points):
    """The two columns of the linear problem: rounds, and bytes summed or moved once, of each point."""
    ranks = np.array([point.ranks for point in points], dtype=float)
    sizes = np.array([point.size for point in points], dtype=float)
    return 2 * (ranks - 1), (ranks - 1) / ranks * sizes


def robust(rounds, moved, times):
    """Huber's estimate for each row of times: (seconds a round, seconds a byte). Gauss-Newton in the logarithms of
    both, which keeps them above 0; a step of at most a factor e."""
    log_times = np.log(times)
    small, large = np.argmin(moved / rounds), np.argmax(moved / rounds)
    x, y = log_times[:, small] - np.log(rounds[small]), log_times[:, large] - np.log(moved[large])
    for _ in range(STEPS):
        latency, transfer = rounds * np.exp(x)[:, None], moved * np.exp(y)[:, None]
        off = log_times - np.log(latency + transfer)
        # Never below what rounding makes of exact data: else the weights would be noise.
        spread = np.maximum(np.median(np.abs(off), axis=-1, keepdims=True) / 0.6745, 1e-9)
        weights = np.minimum(1.0, HUBER * spread / np.maximum(np.abs(off), 1e-12))
        share = latency / (latency + transfer)
        aa, ab, bb = (np.sum(weights * one, axis=-1) for one in (share * share, share * (1 - share), (1 - share) ** 2))
        a1, b1 = np.sum(weights * share * off, axis=-1), np.sum(weights * (1 - share) * off, axis=-1)
        aa, bb = aa + RIDGE, bb + RIDGE
        det = aa * bb - ab * ab
        x = np.maximum(x + np.clip((a1 * bb - b1 * ab) / det, -1, 1), LEAST_LOG)
        y = np.maximum(y + np.clip((b1 * aa - a1 * ab) / det, -1, 1), LEAST_LOG)
    return np.exp(x), np.exp(y)


def check(points):
    if any(point.ranks < 2 for point in points):
        raise FitError("the times are of one rank: an all-reduce of one rank moves nothing; measure with two or more")
    sizes = {point.size for point in points}
    if len(sizes) < MIN_SIZES:
        raise FitError(
            f"{len(sizes)} different size{'s' if len(sizes) != 1 else ''} of message cannot tell alpha from "
            f"beta: measure {MIN_SIZES} or more, as all_reduce_perf -b 4 -e 64M -f 4 does"
        )
    if any(not point.seconds > 0 for point in points):
        raise FitError("a time is not above 0")


def fit(points, gamma=0.0, bootstraps=BOOTSTRAPS):
    """Fit of these points; gamma in seconds a byte, 0: beta contains the sums."""
    check(points)
    rounds, moved = columns(points)
    times = np.array([point.seconds for point in points], dtype=float)
    per_round, per_byte = (float(value[0]) for value in robust(rounds, moved, times[None, :]))
    fitted = rounds * per_round + moved * per_byte
    if np.max(moved * per_byte / fitted) < LEAST_SHARE:
        raise FitError("the times do not grow with the size: no bandwidth can be found")
    if per_byte <= gamma:
        rate = f"{1e-9 / gamma:.3g} GB/s"
        raise FitError(f"summing alone, at {rate}, would take longer than was measured: --sum-gb-s is too low")
    off = np.log(times / fitted)
    draw = np.random.default_rng(SEED).integers(0, len(points), (bootstraps, len(points)))
    # Residuals of a fit are smaller than the noise by what its two parameters take up. Not centred: one outlier would
    # move them all.
    noise = off * np.sqrt(len(points) / (len(points) - 2))
    alphas, bytes_s = robust(rounds, moved, fitted * np.exp(noise[draw]))
    low, high = 50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)
    slow, fast = np.percentile(bytes_s, high) - gamma, np.percentile(bytes_s, low) - gamma
    least, most = float(2 / slow) if slow > 0 else 0.0, float(2 / fast) if fast > 0 else float("inf")
    alpha = Interval(per_round, float(np.percentile(alphas, low)), float(np.percentile(alphas, high)))
    residuals = tuple(float(value) for value in np.expm1(off))
    return Fit(alpha, Interval(2 / (per_byte - gamma), least, most), gamma, tuple(points), residuals)


def by_ranks(points):
    """The points of each number of ranks apart."""
    numbers = sorted({point.ranks for point in points})
    return {ranks: [point for point in points if point.ranks == ranks] for ranks in numbers}
