"""CUDA's part of _pipeline.py: pinned memory, streams and events, through PyTorch."""

from typing import Any, List, Optional

import torch

from ._pipeline import LEAST_PIECE_BYTES, Device
from ._tensors import writing


class Cuda:
    """Side streams of one group on one GPU. Its operations may share them, since they wait for each other anyway; two
    groups must not: one's operation may wait for a kernel that waits for the other's."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # Of high priority, as PyTorch's Gloo has them, so that copies do not wait for the program's kernels.
        self._sides = [torch.cuda.Stream(device, priority=-1) for _ in range(2)]
        self._streams: List[Optional[Any]] = [*self._sides, None]  # by _pipeline's numbers
        self._short: Optional[torch.Tensor] = None

    def now(self) -> torch.cuda.Event:
        return torch.cuda.current_stream(self._device).record_event()

    def catch_up(self, event: torch.cuda.Event) -> None:
        torch.cuda.current_stream(self._device).wait_event(event)

    def _stream(self, number: int) -> torch.cuda.Stream:
        return self._streams[number] or torch.cuda.current_stream(self._device)

    def follow(self, stream: int, event: torch.cuda.Event) -> None:
        self._stream(stream).wait_event(event)

    def mark(self, stream: int) -> torch.cuda.Event:
        return self._stream(stream).record_event()

    def hold(self, event: torch.cuda.Event) -> None:
        event.synchronize()  # releases the GIL

    def keep(self, memory: torch.Tensor) -> None:
        for stream in self._sides:
            memory.record_stream(stream)

    def host_memory(self, size: int, kept: bool) -> torch.Tensor:
        # Other calls, outside of the caller's mode, will write it too.
        with torch.inference_mode(False):
            return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=kept)

    def memory_for_short(self) -> torch.Tensor:
        if self._short is None:
            self._short = self.host_memory(LEAST_PIECE_BYTES, kept=True)
        return self._short

    def address(self, host: torch.Tensor) -> int:
        return int(host.data_ptr())

    def copy_in(self, stream: int, host: torch.Tensor, at: int, memory: torch.Tensor, first: int, last: int) -> None:
        with torch.cuda.stream(self._streams[stream]), torch.no_grad():
            host[at : at + last - first].copy_(memory[first:last], non_blocking=True)

    def copy_out(self, stream: int, memory: torch.Tensor, first: int, last: int, host: torch.Tensor, at: int) -> None:
        with torch.cuda.stream(self._streams[stream]), writing(memory):
            memory[first:last].copy_(host[at : at + last - first], non_blocking=True)


def make(device: torch.device) -> Device:
    return Cuda(device)
