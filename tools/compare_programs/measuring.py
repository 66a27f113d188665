"""What ranks measure with, and how they write it down. Knows neither PyTorch nor another library."""

import ctypes
import json
import os
import time


class Samples:
    """Seconds, by quantity, the bytes of the vector and the milliseconds of computing before it; written as
    microseconds."""

    def __init__(self):
        self.rows = {}

    def add(self, seconds, quantity, size=0, compute_ms=0):
        self.rows.setdefault((quantity, size, compute_ms), []).append(seconds)

    def as_records(self):
        return [
            {
                "quantity": quantity,
                "bytes": size,
                "compute_ms": compute_ms,
                "samples_us": [round(1e6 * one, 3) for one in seconds],
            }
            for (quantity, size, compute_ms), seconds in self.rows.items()
        ]


def seconds_since(begin):
    return time.perf_counter() - begin


def bytes_of(tensor):
    """A copy of a contiguous tensor's memory; its numbers may be of a kind that numpy does not know."""
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def write_record(path, record):
    """Whole or not at all."""
    with open(path + ".partial", "w") as file:
        json.dump(record, file)
    os.replace(path + ".partial", path)
