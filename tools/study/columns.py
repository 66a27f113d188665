"""Which transports a study's tables have columns for, and why one of them is empty. Pure."""

import re
from dataclasses import dataclass

from gloo_bypass_tools.common.transports import COMPARED
from gloo_bypass_tools.study.transports import KERNEL_LINKS, kind_of

NOT_ASKED_FOR = "it was not asked for"


@dataclass(frozen=True)
class Absent:
    """A transport without any run. `planned`: it has columns with figures of the model all the same."""

    transport: str
    why: str
    planned: bool


def why_of(record, transport, planned):
    for one in record.get("left_out", []):
        if transport == one["what"]:
            return one["why"]
    if not planned:
        return NOT_ASKED_FOR
    for one in record.get("failures", []):
        if transport in re.split("[:,] ", one["stage"]):
            return one["reason"]
    return {"interrupted": "the study was interrupted before", "running": "the study has not come to it"}.get(
        record["state"], "nothing of it was measured"
    )


def absent_of(record, plan):
    """Planned transports of which there is no run, and those of a complete comparison; in the order of the columns."""
    measured = {run["cell"]["transport"] for run in record["runs"]}
    planned = {one if one in KERNEL_LINKS else kind_of(one) for one in plan.transports}
    listed = [(one, True) for one in plan.transports if one not in measured]
    listed += [(one, False) for one in COMPARED if one not in planned]
    return [Absent(one, why_of(record, one, is_planned), is_planned) for one, is_planned in listed]
