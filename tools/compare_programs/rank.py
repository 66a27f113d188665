"""One rank of a program that is compared: runs it over the transport that GLOO_DEVICE_TRANSPORT names, and writes what
it measured, once the counters say that the bytes went over that transport.

    python3 -m gloo_bypass_tools.compare_programs.rank MODULE DEVICE SETTINGS RESULT

MODULE is one of this folder, DEVICE cpu or cuda, SETTINGS are its sizes as JSON, RESULT is a new file.
"""

import importlib
import json
import os
import socket
import struct
import sys

import torch
import torch.distributed as dist

from gloo_bypass_tools.common import torch_rank, transports
from gloo_bypass_tools.compare_programs.measuring import Samples, bytes_of, write_record

try:
    from torch.distributed import _functional_collectives as functional
except ImportError:  # PyTorch 1.13
    functional = None

TIMEOUT_S = 120
# Of linux/tcp.h's tcp_info: where tcpi_bytes_received is, and a length that has it.
RECEIVED_AT, INFO_BYTES = 128, 136
# A peer's certificate, even a small one, has more; Gloo's own first message has less.
LEAST_HANDSHAKE_BYTES = 500


class Group:
    """The process group, and what went through it: `reduced_bytes` counts the vectors that were all-reduced. Its
    vectors are on `device`; what is asked of the group, and of a GPU, is done when a call returns."""

    def __init__(self, device):
        self.rank, self.size, self.reduced_bytes = dist.get_rank(), dist.get_world_size(), 0
        self.device = device
        self.has_functional = hasattr(getattr(functional, "AsyncCollectiveTensor", None), "wait")

    def all_reduce(self, tensor):
        self.reduced_bytes += tensor.numel() * tensor.element_size()
        dist.all_reduce(tensor)
        self.synchronize()

    def all_reduce_later(self, tensor):
        self.reduced_bytes += tensor.numel() * tensor.element_size()
        dist.all_reduce(tensor, async_op=True).wait()

    def all_reduce_functionally(self, tensor):
        """As tensor parallelism does."""
        self.reduced_bytes += tensor.numel() * tensor.element_size()
        functional.all_reduce(tensor, "sum", dist.group.WORLD).wait()

    def barrier(self):
        self.synchronize()
        dist.barrier()

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def zeros(self, size):
        return torch.zeros(size // 4, device=self.device)

    def filled(self, size, value):
        return torch.full((size // 4,), value, device=self.device)

    def bytes_of(self, vector):
        return bytes_of(vector.cpu())


def device_of(kind):
    """The device of this rank's tensors; a GPU is its current one from here on."""
    if kind == "cpu":
        return torch.device("cpu")
    device = torch.device(kind, int(os.environ["RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def bytes_received():
    """Of each TCP connection of this process, but those of PyTorch's store."""
    found, store = [], int(os.environ["MASTER_PORT"])
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            with socket.socket(fileno=os.dup(number)) as one:
                if store not in (one.getsockname()[1], one.getpeername()[1]):
                    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_BYTES)
                    found.append(struct.unpack_from("Q", info, RECEIVED_AT)[0])
        except (OSError, IndexError, struct.error):
            continue  # no socket, one of another kind, or one that listens
    return found


def require_handshakes():
    """PyTorch 2.11 takes keys and certificates, and then sends in clear: right after the group was made, each peer's
    certificate must have come."""
    received = bytes_received()
    if sum(one > LEAST_HANDSHAKE_BYTES for one in received) < dist.get_world_size() - 1:
        raise RuntimeError(
            f"{transports.TLS}: PyTorch {torch.__version__} sends in clear: its ranks have connected without TLS"
        )


def join():
    """Over TLS only with handshakes. Since 2.12 PyTorch from PyPI is built without TLS, and names a device instead."""
    encrypts = torch_rank.transport() == transports.TLS
    try:
        torch_rank.join(TIMEOUT_S)
    except RuntimeError as error:
        if encrypts and "unsupported gloo device" in str(error):
            raise RuntimeError(f"{transports.TLS}: PyTorch {torch.__version__} was built without it") from error
        raise
    if encrypts:
        require_handshakes()


def measure(module, device, settings, path):
    program = importlib.import_module(f"gloo_bypass_tools.compare_programs.{module}")
    join()
    group, samples = Group(device_of(device)), Samples()
    checksum = program.measure(group, settings, samples)
    dist.barrier()  # so that the end of a rank which fails now is not the failure of another one
    # On one host our own collectives over DPDK move every vector through its memory.
    own = torch_rank.own_collectives() and torch_rank.transport() == "DPDK"
    torch_rank.require_transport(group.reduced_bytes, "MEMORY" if own else None)
    write_record(
        path,
        {
            "transport": transports.name_by(os.environ),
            "rank": group.rank,
            "reduced_bytes": group.reduced_bytes,
            "checksum": checksum,
            "rows": samples.as_records(),
        },
    )
    dist.barrier()


def main():
    module, device, settings, path = sys.argv[1:]
    torch_rank.run(lambda: measure(module, device, json.loads(settings), path))


if __name__ == "__main__":
    main()
