"""What a study can run over, and which links carry it. Pure.

TCP, DPDK and DPDK-netdev cross the fabric's switch. RDMA, and TCP beside it (TCP-netem), cross links of the same
description that the kernel's netem makes: on this machine where its kernel has netem and SoftRoCE, else in the guest of
scripts/rdma-guest, whose processor is emulated. A figure from there is of another machine: bytes and delays compare
with the host's, times do not.
"""

from gloo_bypass_tools.common.transports import BY_NAME, NETEM, SWITCH, names

SWITCHED = names(lambda one: one.links == SWITCH)
KERNEL_LINKS = names(lambda one: one.links == NETEM)
ALL = (*SWITCHED, *KERNEL_LINKS)


def kind_of(transport):
    """The transport's name to the ranks: DPDK for DPDK-netdev."""
    return BY_NAME[transport].device


# Over the switch, each once: DPDK-netdev is DPDK otherwise attached.
DISTINCT = tuple(one for one in SWITCHED if kind_of(one) == one)


def is_tcp(transport):
    return kind_of(transport) == "TCP"


def run_flags(transport):
    """Of fabric-run. Where links of the kernel are made was decided before: where this runs."""
    if transport not in KERNEL_LINKS:
        return ("--transport", transport, "--samples")
    return ("--transport", kind_of(transport), "--links", "netem", "--where", "host")


def is_beside(plan, one, other):
    """Whether both are measured on the same machine, so that their times compare."""
    return (one in plan.guest) == (other in plan.guest)


def baseline_of(plan, transport):
    """What this one's times are held against: the first that is measured beside it. None where it is the first
    itself."""
    first = next(one for one in plan.transports if is_beside(plan, one, transport))
    return None if first == transport else first


def compared(plan):
    """(transport, baseline) of all that have one, in the plan's order."""
    return [(one, baseline) for one in plan.transports if (baseline := baseline_of(plan, one)) is not None]


def heading(plan, transport):
    """Of a column."""
    return f"{transport}, guest" if transport in plan.guest else transport
