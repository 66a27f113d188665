"""Calls with several tensors a rank, which ProcessGroupGloo takes since processes had several GPUs: every tensor counts
as if a rank of its own had given it."""

from typing import Any, Callable, List

import torch

from . import _tensors as of
from ._calls import Calls, Tensors
from ._tensors import ArgumentError, Staging

_Combine = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
#: In the order of collectives/c_api.h; averages are sums that are divided later.
_COMBINE: List[_Combine] = [
    torch.add,
    torch.add,
    torch.mul,
    torch.minimum,
    torch.maximum,
    torch.bitwise_and,
    torch.bitwise_or,
    torch.bitwise_xor,
]


def check_alike(what: str, tensors: Tensors) -> None:
    if not tensors:
        raise ArgumentError(f"gloo_bypass: {what} requires non-empty tensor list")
    first = tensors[0]
    for index, tensor in enumerate(tensors):
        for fault, there, wanted in (
            ("layout", tensor.layout, first.layout),
            ("type", tensor.dtype, first.dtype),
            ("size", tuple(tensor.shape), tuple(first.shape)),
        ):
            if there != wanted:
                raise ArgumentError(
                    f"gloo_bypass: {what}: invalid tensor {fault} at index {index} (expected {wanted}, got {there})"
                )


class Several(Calls):
    def _combined(self, tensors: Tensors, reduction: int) -> torch.Tensor:
        whole = tensors[0].detach().clone()
        for tensor in tensors[1:]:
            whole = _COMBINE[reduction](whole, tensor.detach())
        if reduction == of.AVERAGE:
            whole /= len(tensors)
        return whole

    def _all_reduce_several(self, tensors: Tensors, reduction: int, opts: Any) -> Any:
        staging = Staging(of.ALL_REDUCE, tensors, reduction)
        whole = self._combined([staging.input(tensor) for tensor in tensors], reduction).contiguous()
        staging.copies = [(tensor, whole) for tensor in tensors]
        block = staging.block(whole)
        return self._start(of.ALL_REDUCE, staging, opts, block, block, tensors, reduction)

    def _broadcast_several(self, tensors: Tensors, opts: Any) -> Any:
        is_root = opts.rootRank == self._rank
        staging = Staging(of.BROADCAST, tensors)
        whole = staging.input(tensors[opts.rootTensor if is_root else 0]).detach().clone().contiguous()
        staging.copies = [(tensor, whole) for tensor in tensors]
        block = staging.block(whole)
        source, target = (block, ()) if is_root else ((), block)
        return self._start(of.BROADCAST, staging, opts, source, target, tensors, root=opts.rootRank)

    def _all_gather_several(self, outputs: List[Tensors], inputs: Tensors, opts: Any) -> Any:
        """Each list of outputs gets all ranks' inputs, those of a rank one after the other."""
        check_alike("allgather", inputs)
        for index, row in enumerate(outputs):
            if len(row) != self._size * len(inputs):
                raise ArgumentError(
                    f"gloo_bypass: allgather: invalid output tensor list at index {index} (expected length "
                    f"{self._size * len(inputs)}, got {len(row)})"
                )
            check_alike("allgather", [inputs[0], *row])
        staging = Staging(of.ALL_GATHER, inputs)
        own = torch.stack([staging.input(tensor).detach() for tensor in inputs])
        whole = torch.empty((self._size, *own.shape), dtype=own.dtype, device=own.device)
        staging.copies = [pair for row in outputs for pair in zip(row, whole.flatten(0, 1))]
        source = staging.block(own)
        parts = staging.parts(whole, [own.numel()] * self._size)
        return self._start(of.ALL_GATHER, staging, opts, source, parts, outputs)
