"""One rank of a program that is compared: joins the process group over the transport that GLOO_DEVICE_TRANSPORT names,
runs the program, and writes what it measured, once the counters say that the bytes went over that transport.

    python3 -m gloo_bypass_tools.compare_programs.rank MODULE DEVICE SETTINGS RESULT

MODULE is one of this folder, DEVICE cpu or cuda, SETTINGS are its sizes as JSON, RESULT is a new file. RANK,
WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who the ranks are. Runs under Python 3.9 and later, with nothing but PyTorch
and gloo_bypass.
"""

import importlib
import json
import os
import sys
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.nn  # noqa: F401  before the group, which it would keep beyond its end (docs/pytorch.md)

from gloo_bypass_tools.common import transports
from gloo_bypass_tools.compare_programs.measuring import Samples, bytes_of, write_record

TIMEOUT_S = 120


class Group:
    """The process group, and what went through it: `reduced_bytes` counts the vectors that were all-reduced. Its
    vectors are on `device`; what is asked of the group, and of a GPU, is done when a call returns."""

    def __init__(self, device):
        self.rank, self.size, self.reduced_bytes = dist.get_rank(), dist.get_world_size(), 0
        self.device = device

    def all_reduce(self, tensor):
        self.reduced_bytes += tensor.numel() * tensor.element_size()
        dist.all_reduce(tensor)
        self.synchronize()

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


def require_transport(transport, least_bytes):
    """An exception unless the bytes went over the transport. A TCP rank loads our package only here: what cannot be
    loaded has carried nothing."""
    try:
        import gloo_bypass
    except ImportError:
        if transport == "TCP":
            return
        raise
    gloo_bypass.require_transport(transport, least_bytes)


def run(module, device, settings, path):
    transport = os.environ["GLOO_DEVICE_TRANSPORT"]
    own = os.environ["GLOO_BYPASS_COLLECTIVES"] == "own"
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if transport != "TCP":
        import gloo_bypass  # noqa: F401  PyTorch 2.5 and later have it by now, 1.13 has not
    program = importlib.import_module(f"gloo_bypass_tools.compare_programs.{module}")
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT_S))
    group, samples = Group(device_of(device)), Samples()
    checksum = program.measure(group, settings, samples)
    dist.barrier()  # so that the end of a rank which fails now is not the failure of another one
    # Two ranks send and receive a vector each; more of them, more.
    # Our own collectives move vectors through this host's memory, and count them as such.
    carrier = "MEMORY" if own and transport == "DPDK" else transport
    require_transport(carrier, group.reduced_bytes if group.size > 1 else 0)
    write_record(
        path,
        {
            "transport": transport + (transports.OWN_SUFFIX if own else ""),
            "rank": group.rank,
            "reduced_bytes": group.reduced_bytes,
            "checksum": checksum,
            "rows": samples.as_records(),
        },
    )
    dist.barrier()


def main():
    module, device, settings, path = sys.argv[1:]
    try:
        run(module, device, json.loads(settings), path)
    except Exception:
        traceback.print_exc()
        # The last line of the log is why. Over TCP threads that are left say more as a process ends.
        sys.stderr.flush()
        os._exit(1)
    if os.environ["GLOO_DEVICE_TRANSPORT"] == "TCP":
        # Over TCP destroying the group hangs now and then in PyTorch 2.6; without that, threads abort the end in 2.13.
        os._exit(0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
