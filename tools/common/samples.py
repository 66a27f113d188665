"""What many samples of one quantity come to. Pure."""


def quantile(values, share):
    """As numpy and the published figures have it: linear between neighbours."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
