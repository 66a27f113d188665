"""The bandwidth that synchronous training over several sites needs. Pure.

T_sync <= alpha_net T_batch        T_sync = T_prop + T_hop + S / BW        BW_min = S / (alpha_net T_batch - T_prop -
T_hop) T_prop = length x us/km            T_hop = hops x hop delay                S = parameters x bits
B_crit = k sqrt(tokens)            updates = tokens / B_crit               T_batch = time / updates
pods = power / power of a pod      FLOPS = pods x FLOPS of a pod

A ring all-reduce over N sites takes more rounds than one time round: with T_1 = (T_prop + T_hop) / N,
one-way 2(N-1) T_1 + 2(N-1)/N S/BW, bidirectional (N-1)(T_1 + S/(N BW)). BW_min is of the topology asked for,
"once-round" if none is.

The defaults are the reference case of "Distributed AI fabrics: a network-side perspective": 10 GW over 23 sites on a
ring of 4,800 km.
"""

import math
from dataclasses import asdict, dataclass

from gloo_bypass_tools.model import quantities, ring

SECONDS_A_DAY = 86400.0
TOPOLOGIES = ("once-round", "one-way", "bidirectional")
# What the source prints; where it differs from the formulas, ROUNDING says why.
SOURCE = {
    "pods": 50000,
    "pods_a_site": 2200,
    "flops": 1.8e22,
    "gradient_bits": 1.15e15,
    "updates": 1.8e6,
    "batch_s": 4.9,
    "sync_s": 0.245,
    "propagation_s": 0.024,
    "hop_s": 0.64e-3,
    "bandwidth": 5.23e15,
    "fabric": 57.6e15,
}
ROUNDING = (
    "the source goes on from T_batch rounded to 4.9 s: T_sync = 245 ms and 5.23 Pbit/s; printed it has T_sync "
    "rounded to 250 ms and 5.1; the 0.25 inside its printed formula is a slip: alpha_net is 0.05"
)


@dataclass(frozen=True)
class Inputs:
    """Powers in W, lengths in km, delays in us, rates in bit/s, times in days."""

    power_w: float = 10e9
    pod_power_w: float = 200e3
    pod_flops: float = 360e15
    sites: int = 23
    ring_km: float = 4800.0
    us_per_km: float = 5.0
    hops: int = 23
    hop_us: float = 28.0
    parameters: float = 72e12
    tokens: float = 2e15
    bits: int = 16
    days: float = 100.0
    critical_tokens: float = 1.13e9
    calibration_tokens: float = 2e15
    alpha_net: float = 0.05
    fabric_pods: int = 2000
    pod_trays: int = 18
    tray_ports: int = 4
    port_bits_s: float = 400e9
    topology: str = "once-round"


@dataclass(frozen=True)
class Topology:
    """A way to synchronise the sites: latency of all its rounds, share of S that each direction of each edge carries,
    and the bandwidth of that direction (None: no bandwidth is enough)."""

    name: str
    formula: str
    latency_s: float
    share: float
    bandwidth: float | None


@dataclass(frozen=True)
class Plan:
    """bandwidth in bit/s; None: it cannot be done, since propagation and hops alone take longer than allowed."""

    pods: float
    pods_a_site: float
    flops: float
    gradient_bits: float
    k: float
    critical_tokens: float
    updates: float
    batch_s: float
    sync_s: float
    propagation_s: float
    hop_s: float
    serialisation_s: float
    bandwidth: float | None
    fabric: float
    topology: str
    topologies: tuple

    @property
    def chosen(self):
        return next(one for one in self.topologies if one.name == self.topology)

    @property
    def feasible(self):
        return self.bandwidth is not None

    def as_record(self):
        return asdict(self) | {"feasible": self.feasible}


def bandwidth_of(bits, seconds):
    return bits / seconds if seconds > 0 else None


def topologies_of(inputs, bits, sync_s):
    """All of them; a hop between neighbours is a part of the length and of the hops' delay."""
    ranks = inputs.sites
    once_s = (inputs.ring_km * inputs.us_per_km + inputs.hops * inputs.hop_us) * 1e-6
    hop_s = once_s / ranks
    shapes = (
        ("once-round", "T_prop + T_hop + S/BW", once_s, 1.0),
        ("one-way", "2(N-1) T_1 + 2(N-1)/N S/BW", ring.rounds(ranks) * hop_s, ring.rank_bytes(ranks, 1.0)),
        ("bidirectional", "(N-1)(T_1 + S/(N BW))", (ranks - 1) * hop_s, (ranks - 1) / ranks),
    )
    return tuple(
        Topology(name, formula, latency_s, share, bandwidth_of(share * bits, sync_s - latency_s))
        for name, formula, latency_s, share in shapes
    )


def plan(inputs):
    pods = inputs.power_w / inputs.pod_power_w
    bits = inputs.parameters * inputs.bits
    k = inputs.critical_tokens / math.sqrt(inputs.calibration_tokens)
    critical = k * math.sqrt(inputs.tokens)
    updates = inputs.tokens / critical
    batch_s = inputs.days * SECONDS_A_DAY / updates
    sync_s = inputs.alpha_net * batch_s
    propagation_s, hop_s = inputs.ring_km * inputs.us_per_km * 1e-6, inputs.hops * inputs.hop_us * 1e-6
    topologies = topologies_of(inputs, bits, sync_s)
    chosen = next(one for one in topologies if one.name == inputs.topology)
    return Plan(
        pods=pods,
        pods_a_site=pods / inputs.sites,
        flops=pods * inputs.pod_flops,
        gradient_bits=bits,
        k=k,
        critical_tokens=critical,
        updates=updates,
        batch_s=batch_s,
        sync_s=sync_s,
        propagation_s=propagation_s,
        hop_s=hop_s,
        serialisation_s=sync_s - chosen.latency_s,
        bandwidth=chosen.bandwidth,
        fabric=float(inputs.fabric_pods) * inputs.pod_trays * inputs.tray_ports * inputs.port_bits_s,
        topology=inputs.topology,
        topologies=topologies,
    )


def with_rounded_steps(made):
    """BW_min with intermediate results rounded, as the source does it: [(what is rounded, T_sync, BW_min)]."""
    batch_s, chosen = quantities.rounded(made.batch_s, 2), made.chosen
    from_batch = made.sync_s / made.batch_s * batch_s
    sync_s = quantities.rounded(quantities.rounded(from_batch, 3), 2)
    steps = {f"T_batch rounded to {batch_s:g} s": from_batch, f"that T_sync rounded to {1e3 * sync_s:g} ms": sync_s}
    return [
        (said, sync_s, bandwidth_of(chosen.share * made.gradient_bits, sync_s - chosen.latency_s))
        for said, sync_s in steps.items()
    ]


def impossibility(made):
    """Why there is no bandwidth, in one line."""
    return (
        f"cannot be: propagation and hops take {quantities.seconds(made.chosen.latency_s)}, and T_sync may take "
        f"{quantities.seconds(made.sync_s)}: no bandwidth is enough; a shorter ring, fewer hops, larger batches "
        "(--critical-batch-tokens), more days or a larger --alpha-net are"
    )
