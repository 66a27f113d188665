"""Tensors as the collectives take them: memory of elements of a known type, dense and in order, on this host.

A tensor that is not so goes through a copy that is: strided views, tensors on other devices. What an operation writes
to a copy goes back when it has ended (`Staging.copy_back`). The blocks of an operation on one GPU's tensors lie on the
device, and _pipeline.py carries them; there only strided views have copies.
"""

from typing import Any, ContextManager, Dict, List, Optional, Sequence, Tuple

import torch

# Values of collectives/c_api.h.
ALL_REDUCE, REDUCE, REDUCE_SCATTER, ALL_GATHER, GATHER, BROADCAST, SCATTER, ALL_TO_ALL, BARRIER = range(9)
REDUCING = (ALL_REDUCE, REDUCE, REDUCE_SCATTER)
_UINT8 = 1
TYPES: Dict[torch.dtype, int] = {
    torch.bool: 0,
    torch.uint8: _UINT8,
    torch.int8: 2,
    torch.int16: 3,
    torch.int32: 4,
    torch.int64: 5,
    torch.float16: 6,
    torch.bfloat16: 7,
    torch.float32: 8,
    torch.float64: 9,
}
#: Those that need no look at what a subclass does with its memory.
PLAIN = {torch.Tensor, torch.nn.Parameter}
SUM, AVERAGE = 0, 1
#: By the value of PyTorch's RedOpType, which is also a ReduceOp's hash; PREMUL_SUM is missing.
REDUCTIONS: Dict[int, int] = {
    int(getattr(torch.distributed.ReduceOp, name)): ours
    for ours, name in enumerate(("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"))
}


class ArgumentError(ValueError, RuntimeError):
    """A wrong argument, which this rank alone can see: the group goes on. Also the RuntimeError that PyTorch's own
    process groups raise; texts have their words where programs may look for them."""


def reduction_of(operation: Any) -> int:
    """Of a ReduceOp or a RedOpType."""
    try:
        return REDUCTIONS[hash(operation)]
    except KeyError:
        named = getattr(operation, "op", operation)
        raise ArgumentError(f"gloo_bypass: {named} is not supported: scale the tensor, then use SUM") from None


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that holds the memory, of a functional collective's result too."""
    if type(tensor) not in PLAIN and hasattr(tensor, "trigger_wait"):
        tensor = tensor.trigger_wait()
    if tensor.layout != torch.strided:
        raise ArgumentError(
            f"gloo_bypass: invalid tensor layout (unsupported layout) {tensor.layout}: of sparse tensors, only COO "
            "ones, and only all_reduce with SUM"
        )
    if not tensor.data_ptr() and tensor.numel():
        raise ArgumentError(
            f"gloo_bypass: this {type(tensor).__name__} has no memory of its own: give what it holds, as a DTensor's "
            "to_local() does"
        )
    return tensor


def is_in_order(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def device_of(tensors: Sequence[torch.Tensor]) -> Optional[torch.device]:
    """The GPU that has all these tensors; else None. Not by what they look like there: other ranks' may be dense, and
    all have to cut the operation alike."""
    if any(not tensor.is_cuda or tensor.layout != torch.strided for tensor in tensors):
        return None
    tensors = [local(tensor) for tensor in tensors]
    device: torch.device = tensors[0].device
    return device if all(tensor.device == device for tensor in tensors) else None


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).view(torch.uint8)


def writing(tensor: torch.Tensor) -> ContextManager[Any]:
    """Of the tensor's mode, not of this thread's: an inference tensor may be written in that mode only."""
    mode: ContextManager[Any] = torch.inference_mode() if tensor.is_inference() else torch.no_grad()
    return mode


class Staging:
    """One operation's tensors: their element type, their blocks, and copies to take back. `at_host`: blocks have to be
    in the host's memory."""

    __slots__ = ("tensors", "element", "scale", "width", "kept", "copies", "device", "_on_device")

    def __init__(self, kind: int, tensors: Sequence[torch.Tensor], reduction: int = SUM, at_host: bool = False) -> None:
        if not tensors:
            raise ArgumentError("gloo_bypass: requires non-empty tensor list")
        dtype = tensors[0].dtype
        for index, tensor in enumerate(tensors):
            if tensor.dtype != dtype:
                raise ArgumentError(
                    f"gloo_bypass: tensors must all have the same type: invalid tensor type at index {index}, "
                    f"{tensor.dtype} among {dtype}"
                )
        self.tensors = tensors
        self.scale = 1  # elements of the operation for each of the tensor
        element: Optional[int] = TYPES.get(dtype)
        if element is None and dtype in (torch.complex64, torch.complex128):
            if reduction not in (SUM, AVERAGE) and kind in REDUCING:
                raise ArgumentError(f"gloo_bypass: {dtype} can be summed and averaged only")
            element, self.scale = TYPES[torch.float32 if dtype == torch.complex64 else torch.float64], 2
        self.width = int(tensors[0].element_size())
        if element is None:
            if kind in REDUCING:
                raise ArgumentError(f"gloo_bypass: {dtype} cannot be reduced")
            if tensors[0].is_quantized:
                raise ArgumentError(f"gloo_bypass: {dtype} cannot be sent: its scale would not go along")
            element, self.scale = _UINT8, self.width  # as bytes
        self.element: int = element
        self.kept: List[torch.Tensor] = []
        self.copies: List[Tuple[torch.Tensor, torch.Tensor]] = []
        #: Where the blocks are, if not in the host's memory.
        self.device = None if tensors[0].is_cpu or at_host else device_of(tensors)
        self._on_device: Dict[Tuple[int, int], torch.Tensor] = {}

    def block(self, tensor: torch.Tensor) -> Tuple[int, int]:
        """(address, elements); the tensor lives as long as this object."""
        self.kept.append(tensor)
        block = tensor.data_ptr(), tensor.numel() * self.scale
        if self.device is not None:
            self._on_device[block] = bytes_of(tensor)
        return block

    def blocks_on_device(self, numbers: Sequence[int]) -> List[Tuple[torch.Tensor, int]]:
        """(bytes, elements) of each block that block() and its kin have returned."""
        pairs = zip(numbers[::2], numbers[1::2])
        return [(self._on_device[address, count], count) for address, count in pairs]

    @property
    def element_width(self) -> int:
        """Bytes of an element of the operation."""
        return self.width // self.scale

    def _is_direct(self, tensor: torch.Tensor) -> bool:
        return (tensor.is_cpu or self.device is not None) and is_in_order(tensor)

    def _dense(self, tensor: torch.Tensor) -> torch.Tensor:
        plain = tensor.detach().resolve_conj().resolve_neg()
        return (plain.cpu() if self.device is None else plain).contiguous()

    def input(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = local(tensor)
        return tensor if self._is_direct(tensor) else self._dense(tensor)

    def output(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = local(tensor)
        if self._is_direct(tensor):
            return tensor
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, device=self.device or "cpu")
        self.copies.append((tensor, copy))
        return copy

    def both(self, tensor: torch.Tensor) -> torch.Tensor:
        """Read and written in place."""
        tensor = local(tensor)
        if self._is_direct(tensor):
            return tensor
        copy = self._dense(tensor)
        self.copies.append((tensor, copy))
        return copy

    def inputs(self, tensors: Sequence[torch.Tensor]) -> Tuple[int, ...]:
        return tuple(number for tensor in tensors for number in self.block(self.input(tensor)))

    def outputs(self, tensors: Sequence[torch.Tensor]) -> Tuple[int, ...]:
        return tuple(number for tensor in tensors for number in self.block(self.output(tensor)))

    def parts(self, tensor: torch.Tensor, counts: Sequence[int]) -> Tuple[int, ...]:
        """Blocks one after the other in a dense tensor; counts of its elements."""
        address, blocks = self.block(tensor)[0], []
        whole, at = None if self.device is None else bytes_of(tensor), 0
        for count in counts:
            blocks += [address + at, count * self.scale]
            if whole is not None:
                self._on_device[address + at, count * self.scale] = whole[at : at + count * self.width]
            at += count * self.width
        return tuple(blocks)

    def apart(self, inputs: Tuple[int, ...], outputs: Sequence[int], rank: int) -> Tuple[int, ...]:
        """Blocks of the inputs, with a copy for each one that shares memory with an output, which may be written before
        the input has left. What this rank keeps may stay where its output is."""
        width, own, moved = self.width // self.scale, 2 * rank, inputs
        lowest = min(outputs[::2])
        highest = max(begin + count * width for begin, count in zip(outputs[::2], outputs[1::2]))
        for at in range(0, len(inputs), 2):
            begin, end = inputs[at], inputs[at] + inputs[at + 1] * width
            if end <= lowest or highest <= begin:
                continue
            for to in range(0, len(outputs), 2):
                other = outputs[to]
                if end <= other or other + outputs[to + 1] * width <= begin:
                    continue
                if begin == other and (len(inputs) == 2 or at == own) and (len(outputs) == 2 or to == own):
                    continue
                moved = (*moved[:at], self._copy(begin, inputs[at + 1]), *moved[at + 1 :])
                break
        return moved

    def _copy(self, address: int, count: int) -> int:
        """Of a block; its address."""
        size = count * self.element_width
        places = ((address - tensor.data_ptr(), bytes_of(tensor)) for tensor in self.kept)
        block = next(whole[at : at + size] for at, whole in places if 0 <= at <= whole.numel() - size)
        copy: torch.Tensor = block.clone()
        self.kept.append(copy)
        place: int = copy.data_ptr()
        if self.device is not None:
            self._on_device[place, count] = copy
        return place

    def copy_back(self) -> None:
        for tensor, copy in self.copies:
            with writing(tensor):
                tensor.copy_(copy)
        self.copies = []


def sum_sparse(indices: Sequence[torch.Tensor], values: Sequence[torch.Tensor], size: torch.Size) -> torch.Tensor:
    # Checked: peers sent the indices.
    whole = torch.sparse_coo_tensor(
        torch.cat(list(indices), 1), torch.cat(list(values), 0), size, check_invariants=True
    )
    return whole.coalesce()
