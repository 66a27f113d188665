"""Numbers as text, the same on the terminal and on the page."""

from gloo_bypass_tools.common.transports import BY_NAME

# Digits after the point by unit, where the size of the number does not decide.
FIXED = {"MB": 2, "%": 1, "% of a core": 2, "MiB": 1}


def number(value, unit=""):
    """About three significant digits; thousands with a separator; '<0.001' for what is less."""
    if unit in FIXED:
        return f"{value:,.{FIXED[unit]}f}"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 0.095 or value == 0:
        return f"{value:.2f}"
    return f"{value:.3g}" if size >= 0.001 else "<0.001"


def ratio_range(one):
    """The range over the repeats, or '' where there was one."""
    return "" if one.low is None else f"{one.low:.2f} to {one.high:.2f}"


def heading(transport):
    """In a table."""
    return transport in BY_NAME and BY_NAME[transport].heading or transport


def label(row):
    """With the unit, unless the label says it."""
    unit = {"us": "\u00b5s"}.get(row.unit, row.unit)
    return f"{row.label}, {unit}" if unit else row.label


def duration(seconds):
    """To the second: 48 s, 3 min 05 s."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"
