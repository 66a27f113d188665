"""Counters of what this process has sent and received."""

import os
from typing import Any, Dict, List, TypedDict

from gloo_bypass_autoload import TRANSPORTS

from . import _library


class Counters(TypedDict):
    """Counts since the first device was made. A message is one send of Gloo's; bytes are payload bytes unless the name
    says otherwise."""

    messages_sent: int
    messages_received: int
    payload_bytes_sent: int
    payload_bytes_received: int
    packets_sent: int
    packets_received: int
    wire_bytes_sent: int  #: with this project's headers
    wire_bytes_received: int
    retransmits: int
    spurious_retransmits: int  #: of frames that had arrived, as far as acknowledgements tell
    tail_loss_probes: int  #: silences after which an acknowledgement was requested
    retransmit_timeouts: int  #: silent still: requested again
    repair_frames_sent: int
    repair_frames_received: int
    frames_recovered: int  #: lost, and recovered from the peer's repair frames
    frames_unrepaired: int  #: retransmitted although repair frames covered them
    duplicates_received: int
    corrupted_received: int  #: checksum failures
    invalid_received: int  #: packets that no correct peer sends
    eager_messages: int  #: sent ahead of the peer's receive
    rendezvous_messages: int  #: waited for the peer's receive, and not copied
    buffered_sends: int
    staged_receives: int  #: copied once more because they came before their receive


class ChannelStats(Counters, total=False):
    """Counters of the connection to one peer."""

    channel: int
    peer: str
    local_rank: int
    peer_rank: int
    smoothed_rtt_us: float  #: this one and the next two: DPDK and UDP only
    min_rtt_us: float
    congestion_window_bytes: int


class PortStats(TypedDict, total=False):
    """The port below the connections. Each transport adds further counters here."""

    description: str
    bytes_sent: int
    bytes_received: int
    packets_sent: int
    packets_received: int


class TransportStats(Counters, total=False):
    """Counters of one transport: the sums over all connections, open ones and closed ones. Later versions may add
    keys."""

    transport: str  #: "DPDK", "UDP", "RDMA" or "MEMORY"
    bytes_sent: int  #: whole frames with all headers and repetitions; RDMA: without the adapter's own headers
    bytes_received: int
    port: PortStats
    open_channels: List[ChannelStats]  #: one for each connected peer of each process group, and interface
    latencies: Dict[str, Any]  #: histograms; only where GLOO_BYPASS_ settings ask for them


def stats() -> Dict[str, TransportStats]:
    """Counters by the transport's name, "DPDK", "UDP" or "RDMA", and "MEMORY" for what our own collectives move through
    a host's memory; {} before this process made its first device of one.

    gloo_bypass.stats()["DPDK"]["bytes_sent"]
    """
    counters: Dict[str, Any] = _library.json_of(_library.handle.gloo_bypass_stats_json, 16384)
    # The plug-in puts each transport's counters under its name only if there are several.
    return {counters["transport"]: counters} if "transport" in counters else counters  # type: ignore[dict-item]


#: Gloo's own transports, which have no counters here.
_GLOOS_OWN = ("TCP", "TCP_TLS", "UV")
#: As which our own collectives count what goes through a host's memory.
_HOSTS_MEMORY = "MEMORY"
_CARRIERS = (*_GLOOS_OWN, *TRANSPORTS, _HOSTS_MEMORY)
_ONCE = "PyTorch reads GLOO_DEVICE_TRANSPORT once a process, when it makes the first group"
#: What the first group of ours was made with, which takes DPDK where nothing is set; empty: none was made.
_made_with = ""
_most_ranks = 0  # of a group of ours


def group_is_made(transport: str, size: int) -> None:
    global _made_with, _most_ranks
    _made_with = _made_with or transport or "DPDK"
    _most_ranks = max(_most_ranks, size)


def require_transport(transport: str = "", least_bytes: int = 1) -> None:
    """Raises RuntimeError unless this process sent and received, together, at least `least_bytes` over `transport`, and
    received nothing over another one of ours. Several names go with commas: "DPDK,MEMORY". Default: the transport in
    GLOO_DEVICE_TRANSPORT, else that of our own groups, or TCP; with DPDK also MEMORY, which our own collectives use
    within a host. A group of one rank has nothing to send.

    For benchmarks: one that changes the variable between two groups measures the first transport again.
    """
    from torch import distributed  # loaded already; without torch only a type checker reads this file

    named = bool(transport)
    counters = stats()
    transport = ",".join(name.strip().upper() for name in transport.split(","))
    if not named:
        transport = os.environ.get("GLOO_DEVICE_TRANSPORT", "").strip().upper() or _made_with or "TCP"
    carriers = transport.split(",")
    unknown = [name for name in carriers if name not in _CARRIERS]
    if named and unknown:
        raise ValueError(f"gloo_bypass: {unknown[0]!r} is no transport: those are {', '.join(_CARRIERS)}")
    if transport == "DPDK" and not named:
        carriers.append(_HOSTS_MEMORY)
    for other, counted in counters.items():
        if other not in carriers and counted["payload_bytes_received"] > 0:
            raise RuntimeError(
                f"gloo_bypass: {transport} was to carry all bytes, but "
                f"{counted['payload_bytes_received']} came over {other}: {_ONCE}"
            )
    alone = _most_ranks == 1 or distributed.is_initialized() and distributed.get_world_size() == 1
    if transport in _GLOOS_OWN or alone:
        return
    own = [counters[name] for name in carriers if name in counters]
    moved = sum(each["payload_bytes_sent"] + each["payload_bytes_received"] for each in own)
    if moved < least_bytes:
        raise RuntimeError(
            f"gloo_bypass: {transport} was to carry {least_bytes} bytes at least, and carried {moved}: {_ONCE}"
        )
