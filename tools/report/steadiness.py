"""Whether a machine was steady while transports took turns: nothing is sent in a forward pass, so it takes as long over
each of them. Pure."""

import statistics

# Forward passes of all repeats that differ by more than the first between transports put the other ratios in doubt; so
# do those of one repeat that differ by more than the second, since others may have been off the other way.
STEADY_SHARE, STEADY_REPEAT_SHARE = 0.05, 0.25


def off(ratio):
    """By what share a ratio differs from 1, up or down."""
    return max(ratio, 1 / ratio) - 1


def unsteady_ratio(overall, of_repeats):
    """The ratio of two forward passes that shows an unsteady machine; None where it was steady."""
    if off(overall) > STEADY_SHARE:
        return overall
    worst = max(of_repeats, key=off, default=overall)
    return worst if off(worst) > STEADY_REPEAT_SHARE else None


def medians_of(steps, transport):
    """(overall, {repeat: median}) of the forward passes behind the warm-up; overall is None without any."""
    by_repeat = {}
    for step in steps:
        if step["transport"] == transport and not step["warm_up"]:
            by_repeat.setdefault(step["repeat"], []).append(step["forward_s"])
    every = [seconds for repeat in by_repeat.values() for seconds in repeat]
    return (
        statistics.median(every) if every else None,
        {repeat: statistics.median(seconds) for repeat, seconds in by_repeat.items()},
    )


def unsteady(steps, transports):
    """{transport: how many times as fast a forward pass was over it as over the first one}, where that shows an
    unsteady machine. `steps`: rows as records.read_training gives them."""
    base, base_repeats = medians_of(steps, transports[0])
    found = {}
    for transport in transports[1:]:
        other, repeats = medians_of(steps, transport)
        if base and other:
            each = [base_repeats[repeat] / repeats[repeat] for repeat in repeats if repeat in base_repeats]
            ratio = unsteady_ratio(base / other, each)
            if ratio is not None:
                found[transport] = ratio
    return found


def in_words(found, first):
    """A sentence on what unsteady() has found; '' where that is nothing."""
    each = " and ".join(
        f"{ratio:.2f} times as fast over {transport} as over {first}" for transport, ratio in found.items()
    )
    return f"Nothing is sent in a forward pass, yet it was {each}" if found else ""
