"""Numbers as text."""

import pytest
from gloo_bypass_tools.report import wording


@pytest.mark.parametrize(
    "value, unit, text",
    [
        (12345.6, "us", "12,346"),
        (99.96, "us", "100.0"),
        (12.34, "us", "12.3"),
        (3.4001, "s", "3.40"),
        (0.0123, "s", "0.0123"),
        (0.0, "s", "0.00"),
        (2e-5, "GB/s", "<0.001"),
        (327.650304, "MB", "327.65"),
        (0.123, "% of a core", "0.12"),
    ],
)
def test_number_is_short_and_says_enough(value, unit, text):
    assert wording.number(value, unit) == text


@pytest.mark.parametrize("seconds, text", [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (185, "3 min 05 s")])
def test_duration_reads_as_people_say_it(seconds, text):
    assert wording.duration(seconds) == text
