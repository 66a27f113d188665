"""Whether a machine was steady while transports took turns: nothing is sent in a forward pass, so it takes as long over
each of them. Pure."""

import statistics

# Forward passes that differ by more than this between transports put the other ratios in doubt.
STEADY_SHARE = 0.05


def is_steady(ratio):
    return max(ratio, 1 / ratio) <= 1 + STEADY_SHARE


def unsteady(steps, transports):
    """{transport: how many times as fast a forward pass was over it as over the first one}, where that is not steady.
    `steps`: rows as records.read_training gives them; those of the warm-up do not count."""
    medians = {}
    for transport in transports:
        seconds = [step["forward_s"] for step in steps if step["transport"] == transport and not step["warm_up"]]
        if seconds:
            medians[transport] = statistics.median(seconds)
    base = medians.get(transports[0])
    found = {}
    for transport in transports[1:]:
        if base and medians.get(transport):
            ratio = base / medians[transport]
            if not is_steady(ratio):
                found[transport] = ratio
    return found


def in_words(found, first):
    """A sentence on what unsteady() has found; '' where that is nothing."""
    each = " and ".join(f"{ratio:.2f} times as fast over {transport} as over {first}"
                        for transport, ratio in found.items())
    return f"Nothing is sent in a forward pass, yet it was {each}" if found else ""
