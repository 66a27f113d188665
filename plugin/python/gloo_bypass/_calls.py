"""How the process group runs an operation: options, limits, works."""

from typing import Any, Dict, List, Sequence, Tuple

import torch
import torch.distributed as dist

from . import _work
from ._tensors import Staging
from ._work import DONE, Work, milliseconds

c10d = torch._C._distributed_c10d
UNSET = c10d.AllreduceOptions().timeout
Tensors = List[torch.Tensor]
Blocks = Tuple[int, ...]


def options_of(kind: Any, options: Any, **fields: Any) -> Any:
    """`options` if it is of that kind; else one with these fields, for PyTorch's short overloads."""
    if isinstance(options, kind):
        return options
    made = kind()
    for name, value in fields.items():
        if value is not None:
            setattr(made, name, value)
    return made


def only(what: str, tensors: Sequence[Any]) -> Any:
    if len(tensors) != 1:
        raise ValueError(f"gloo_bypass: {what}: one tensor for each rank, not {len(tensors)}")
    return tensors[0]


def listed(tensors: Any) -> Tensors:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def check_numel(what: str, tensor: torch.Tensor, wanted: int) -> None:
    if tensor.numel() != wanted:
        raise ValueError(f"gloo_bypass: {what} has {tensor.numel()} elements, it needs {wanted}")


class Calls(dist.ProcessGroup):  # type: ignore[misc]
    _rank: int
    _size: int
    _door: Any
    _run: Any
    _timeout_ms: int  # of a call without its own; 0: the group's
    _sequence: int
    _others: Dict[str, Tuple[Any, Any]]  # by device: backends that have its tensors

    def _limit(self, options: Any) -> int:
        timeout = options.timeout
        return self._timeout_ms if timeout == UNSET else milliseconds(timeout)

    def _other(self, tensor: torch.Tensor) -> Any:
        """Another backend, if it has this tensor's device."""
        if tensor.is_cpu or not self._others:
            return None
        entry = self._others.get(tensor.device.type)
        return None if entry is None else entry[1]

    def _check_number(self, what: str, tensors: Sequence[torch.Tensor]) -> None:
        if len(tensors) != self._size:
            raise ValueError(f"gloo_bypass: {what}: {len(tensors)} tensors for {self._size} ranks")

    def _start(
        self,
        kind: int,
        staging: Staging,
        options: Any,
        inputs: Blocks,
        outputs: Blocks,
        result: Tensors,
        reduction: int = 0,
        root: int = 0,
        uneven: bool = False,
    ) -> Work:
        """DONE, if the call is synchronous."""
        self._sequence += 1
        call = (kind, staging.element, reduction, root, uneven, self._limit(options), inputs, outputs)
        if not getattr(options, "asyncOp", True):
            self._run(*call)
            staging.copy_back()
            return DONE
        operation = self._door.start(*call, staging.kept)
        return Work((operation,), result, staging.copy_back if staging.copies else None)

    def _do(self, *arguments: Any, **more: Any) -> Any:
        return _work.for_pytorch(self._start(*arguments, **more))

    def _join(self, works: Sequence[Work], result: Tensors) -> Any:
        """One for all of them."""
        started = [work for work in works if work is not DONE]
        return _work.for_pytorch(_work.joined(started, result)) if started else DONE
