"""Stores as programs make them by hand, with each PyTorch."""

import torch.distributed as dist


def tcp_store(*arguments):
    """A TCPStore, of the kind that PyTorch chooses; Debian's asks for one with libuv by default, and may have none."""
    try:
        return dist.TCPStore(*arguments)
    except RuntimeError as error:
        if "libuv" not in str(error):
            raise
        return dist.TCPStore(*arguments, use_libuv=False)
