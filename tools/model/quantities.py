"""Numbers with units as text, and rounding as a reader of a paper rounds. Pure."""

from decimal import ROUND_HALF_UP, Decimal

PREFIXES = {-9: "n", -6: "\u00b5", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}


def si(value, unit, digits=3):
    """'5.23 Pbit/s', '244 ms': a prefix of the SI and so many significant digits."""
    if value == 0:
        return f"0 {unit}"
    mantissa, exponent = f"{abs(value):.{digits - 1}e}".split("e")
    group = min(18, max(-9, 3 * (int(exponent) // 3)))
    shift = int(exponent) - group
    text = f"{float(mantissa) * 10.0**shift:.{max(0, digits - 1 - shift)}f}"
    return f"{'-' if value < 0 else ''}{text} {PREFIXES[group]}{unit}"


def seconds(value):
    """'24.0 ms', '4.88 s', '87.8 s', '1,240 s': no prefix above seconds."""
    if value is None:
        return "-"
    if abs(value) < 0.9995:
        return si(value, "s")
    return f"{value:,.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f} s"


def megabytes(value):
    """To 1 kB, as the published figures are."""
    return f"{value / 1e6:,.3f} MB"


def percent(share, digits=3):
    return f"{100 * share:.{digits}f} %"


def count(value):
    """Large counts by a power of ten, small ones whole."""
    return f"{value:.3g}" if abs(value) >= 1e7 else f"{value:,.0f}"


def rounded(value, digits):
    """To so many significant digits, halves up: 0.245 to two is 0.25."""
    number = Decimal(repr(value))
    if number == 0:
        return value
    return float(number.quantize(Decimal(1).scaleb(number.adjusted() - digits + 1), rounding=ROUND_HALF_UP))
