"""Statistics of samples. Pure."""


def quantile(values, share):
    """Linear between neighbours, as in numpy and in the published figures."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
