"""Which transports work here."""

import dataclasses
from typing import Dict

from . import _library


@dataclasses.dataclass(frozen=True)
class Availability:
    """Whether one transport works. True in a condition if it does: `if gloo_bypass.available()["RDMA"]: ...`"""

    name: str  #: as GLOO_DEVICE_TRANSPORT has it: "TCP", "DPDK", "UDP" or "RDMA"
    available: bool
    device: str  #: what it would communicate through; empty if it does not work
    reason: str  #: why it does not work and what to do, in one line; empty if it does

    def __bool__(self) -> bool:
        return self.available

    def __str__(self) -> str:
        return f"{self.name}: {'yes, ' + self.device if self.available else 'no, ' + self.reason}"


def available() -> Dict[str, Availability]:
    """Which of "TCP", "DPDK", "UDP" and "RDMA" init_process_group("gloo") could use in this process, by name.

    Each is really made, as the environment says (GLOO_BYPASS_*, GLOO_SOCKET_IFNAME), in a child process that ends at
    once: this process starts neither DPDK nor RDMA, and may fork afterwards. No process or file stays behind, and no
    folder but the empty dpdk/gloo-bypass that DPDK makes in $XDG_RUNTIME_DIR or /tmp (for root: /var/run). A transport
    that this process uses already is available. Takes a fraction of a second; at most 60 s for each transport, after
    which it counts as not available.
    """
    answers = _library.json_of(_library.handle.gloo_bypass_available_json, 16384)
    return {
        name: Availability(name, answer["available"], answer["device"], answer["reason"])
        for name, answer in answers.items()
    }
