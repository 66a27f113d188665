"""What a partial sum is made of: fp32 alone, fp32 with the error carried along, or fp64.

Each class holds one vector of partial sums. `of` makes it of a rank's fp32 vector, `+` is what a rank does with what it
receives, `rounded` is the fp32 result that parameters are updated with.
"""

import numpy as np


class Plain:
    """What DDP does: fp32 partial sums, rounded at every addition."""

    wire_bytes = 4

    def __init__(self, values):
        self.values = values

    @classmethod
    def of(cls, vector):
        return cls(np.asarray(vector, np.float32))

    @classmethod
    def joined(cls, parts):
        return cls(np.concatenate([part.values for part in parts]))

    def __len__(self):
        return len(self.values)

    def __getitem__(self, part):
        return type(self)(self.values[part])

    def __add__(self, other):
        return type(self)(self.values + other.values)

    def rounded(self):
        return self.values.astype(np.float32)


class Double(Plain):
    """Partial sums in fp64, twice the bytes on the wire."""

    wire_bytes = 8

    @classmethod
    def of(cls, vector):
        return cls(np.asarray(vector, np.float64))


class Compensated:
    """fp32 sums, and beside each what rounding has lost so far, twice the bytes on the wire.

    two_sum finds the error of an addition exactly (Knuth, TAOCP 2, 4.2.2, theorem B); adding the errors up is
    Neumaier's summation (ZAMM 54, 1974), with two partial sums in place of a sum and a number.
    """

    wire_bytes = 8

    def __init__(self, values, lost):
        self.values, self.lost = values, lost

    @classmethod
    def of(cls, vector):
        values = np.asarray(vector, np.float32)
        return cls(values, np.zeros_like(values))

    @classmethod
    def joined(cls, parts):
        return cls(np.concatenate([part.values for part in parts]), np.concatenate([part.lost for part in parts]))

    def __len__(self):
        return len(self.values)

    def __getitem__(self, part):
        return type(self)(self.values[part], self.lost[part])

    def __add__(self, other):
        total, lost = two_sum(self.values, other.values)
        return type(self)(total, (self.lost + other.lost) + lost)

    def rounded(self):
        return self.values + self.lost


def two_sum(a, b):
    """(s, e) with s = a + b rounded and s + e = a + b exactly."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


ARITHMETICS = {"fp32": Plain, "compensated": Compensated, "fp64": Double}
