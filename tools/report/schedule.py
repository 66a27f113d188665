"""Who runs when, and how many repeats fit the time given. Pure: time comes in as arguments, in seconds."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Turn:
    """One training run: which transport, and which repeat it belongs to (from 1)."""

    transport: str
    repeat: int

    @property
    def name(self):
        return f"train over {self.transport}, repeat {self.repeat}"


def repeat_turns(transports, repeat):
    """The runs of one repeat, in the order given, so that repeats read A B A B."""
    return [Turn(transport, repeat) for transport in transports]


def affordable_repeats(remaining_s, repeat_s, done, at_most):
    """How many repeats there will be in all, when `done` are finished and one took `repeat_s`.

    Never fewer than are done already, and never more than `at_most`.
    """
    if repeat_s <= 0:
        raise ValueError(f"repeat_s must be above 0, not {repeat_s}")
    further = max(0, math.floor(remaining_s / repeat_s))
    return max(done, min(at_most, done + further))


def run_limit_s(steps, step_limit_s=60.0, start_limit_s=120.0):
    """The bound after which a training run counts as stuck: a step takes seconds, so this is generous."""
    return start_limit_s + steps * step_limit_s


def remaining_s(total_s, elapsed_s, reserve_s):
    """What is left for measuring once `reserve_s` is kept for what comes after it."""
    return max(0.0, total_s - elapsed_s - reserve_s)
