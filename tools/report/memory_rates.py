"""How fast this machine copies a vector of 64 MiB, and adds one to another (b += a), with one thread and with all.

Each stored run has these rates. A machine that others share can be three times as fast in one hour as in the next while
it shows no load, and what an all-reduce of large vectors gains depends on it. GB is 1e9 bytes of the vector; each is
read and written once, or for an addition read twice and written once.

Run by a Python that has PyTorch, this file prints one sample as JSON; nothing but Python's own library is needed
besides.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

VECTOR_BYTES = 64 << 20
WARM_UP, TIMED = 2, 9
LIMIT_S = 120
OPERATIONS = ("copy", "add")
PYTHON = "/usr/bin/python3"


class RatesError(Exception):
    """They cannot be measured; the text is one line."""


def seconds_of(operation):
    taken = []
    for _ in range(WARM_UP + TIMED):
        begin = time.perf_counter()
        operation()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken[WARM_UP:])


def sample(vector_bytes=VECTOR_BYTES):
    """{"copy_GBps": {threads: rate}, "add_GBps": the same}, with one thread and with as many as there are cores."""
    import torch

    a, b = (torch.ones(vector_bytes // 4) for _ in range(2))
    operations = {"copy": lambda: b.copy_(a), "add": lambda: b.add_(a)}
    found = {f"{name}_GBps": {} for name in operations}
    for threads in sorted({1, len(os.sched_getaffinity(0))}):
        torch.set_num_threads(threads)
        for name, operation in operations.items():
            found[f"{name}_GBps"][str(threads)] = round(vector_bytes / seconds_of(operation) / 1e9, 3)
    return found


def measure(python=PYTHON):
    """A sample, by that Python. RatesError if it fails."""
    from gloo_bypass_tools.common.processes import ask, errors_of

    left_out = ("LD_PRELOAD", "OMP_NUM_THREADS", "GLOO_DEVICE_TRANSPORT")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    try:
        # By its text and not its name: this folder's modules must not stand where PyTorch looks for its own.
        done = ask([python, "-c", Path(__file__).read_text()], LIMIT_S, env=environment, cwd="/")
        if done.returncode != 0:
            raise RatesError(f"{python}: {errors_of(done)[-1]}")
        return json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise RatesError(f"{python}: {error}") from error


class RateSamples(list):
    """The samples of one run, taken while nothing that is measured runs. `why_not`: why there are none."""

    def __init__(self, python=PYTHON):
        super().__init__()
        self.python, self.why_not = python, ""

    def take(self):
        if not self.why_not:
            try:
                self.append(measure(self.python))
            except RatesError as error:
                self.why_not = str(error)


def checked(place, samples):
    """The samples of a stored run. RecordError where they are not what sample() gives."""
    from gloo_bypass_tools.report.records import RecordError, number_at, value_at

    for number, one in enumerate(samples):
        for name in OPERATIONS:
            rates = value_at(f"{place}: rates[{number}]", one, f"{name}_GBps", dict)
            for threads, rate in rates.items():
                where = f"{place}: rates[{number}]: {name}_GBps"
                if not threads.isdigit() or number_at(where, rates, threads) <= 0:
                    raise RecordError(f"{where}: '{threads}' is {rate!r}: threads and a rate above 0 are wanted")
    return tuple(samples)


def span(values, unit):
    """The least and the largest, once where they are the same as shown."""
    low, high = f"{min(values):.2g}", f"{max(values):.2g}"
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def sentence(samples):
    """A sentence on the machine of a stored run."""
    state = in_words(samples)
    return f"The machine {state}." if state else "How fast it copies and adds was not recorded."


def in_words(samples):
    """The rates of all samples, in a phrase; '' without samples."""
    parts = []
    for name, verb in (("copy", "copies 64 MiB"), ("add", "adds")):
        by_threads = {}
        for one in samples:
            for threads, rate in one[f"{name}_GBps"].items():
                by_threads.setdefault(int(threads), []).append(rate)
        rates = [
            f"{span(values, 'GB/s')} with {threads} thread{'s' if threads > 1 else ''}"
            for threads, values in sorted(by_threads.items())
        ]
        if rates:
            parts.append(f"{verb} at {', '.join(rates)}")
    return "; ".join(parts)


if __name__ == "__main__":
    json.dump(sample(), sys.stdout)
