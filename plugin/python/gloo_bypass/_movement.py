"""Operations that move data and add nothing: gathers, broadcast, scatter, all-to-all, barriers, messages."""

import contextlib
import datetime
import time
from typing import Any, List, Optional, Sequence, Tuple

import torch

from . import _profiling, _tensors as of
from ._calls import UNSET, Tensors, await_key, c10d, check_numel, check_pairs, given, listed, only, options_of
from ._reductions import Reductions
from ._several import check_alike
from ._tensors import ArgumentError, Staging
from ._work import Message, Work, milliseconds, tensors_in

_ANY_PEER = -1
_TAGS = 0xFFFFFFFF
#: How long rank 0 of a monitored barrier waits for those that have come to read the answer.
_LONGEST_READ_S = 5.0


def _on_one_line(text: bytes) -> str:
    """Printable: what was not is escaped."""
    readable = text.decode(errors="backslashreplace")
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in readable)


class Movement(Reductions):
    _own_store: Any
    _timeout: datetime.timedelta
    _barriers: int

    # --- from one to all, and back ---

    def broadcast(
        self, tensors: Any = None, opts: Any = None, timeout: Any = None, *, root: Any = None, tensor: Any = None
    ) -> Any:
        opts = options_of(c10d.BroadcastOptions, opts, rootRank=given(opts, root), timeout=timeout)
        tensors = listed(given(tensors, tensor))
        self._check_root("broadcast", opts)
        if not 0 <= opts.rootTensor < len(tensors):
            raise ArgumentError(
                f"gloo_bypass: broadcast: invalid root tensor {opts.rootTensor} of {len(tensors)} tensors"
            )
        tensor = tensors[0]
        if (other := self._other(tensor)) is not None:
            return other.broadcast(tensors, opts)
        if len(tensors) > 1:
            check_alike("broadcast", tensors)
            return self._broadcast_several(tensors, opts)
        staging = Staging(of.BROADCAST, [tensor])
        is_root = opts.rootRank == self._rank
        block = staging.block(staging.input(tensor) if is_root else staging.output(tensor))
        blocks = (block, ()) if is_root else ((), block)
        return self._start(of.BROADCAST, staging, opts, *blocks, [tensor], root=opts.rootRank)

    def gather(
        self,
        output_tensors: Any = None,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: Any = None,
        *,
        root: Any = None,
        input_tensor: Any = None,
    ) -> Any:
        outputs, inputs = output_tensors, given(input_tensors, input_tensor)
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs] if outputs else [], [inputs]
        opts = options_of(c10d.GatherOptions, opts, rootRank=given(opts, root), timeout=timeout)
        self._check_root("gather", opts)
        tensor = only("gather", "input tensor", inputs)
        if (other := self._other(tensor)) is not None:
            return other.gather(outputs, inputs, opts)
        is_root = opts.rootRank == self._rank
        targets = only("gather", "output", outputs) if is_root else []
        if not is_root and outputs:
            raise ArgumentError("gloo_bypass: gather requires empty output on non-root")
        if is_root:
            self._check_number("gather", "output", targets)
            for target in targets:
                check_numel("an output of gather", target, tensor.numel())
        staging = Staging(of.GATHER, [tensor, *targets])
        source = staging.block(staging.input(tensor))
        blocks = staging.outputs(targets)
        return self._start(of.GATHER, staging, opts, source, blocks, list(targets), root=opts.rootRank)

    def gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        """Into one tensor. Gloo has none."""
        opts = options_of(c10d.GatherOptions, opts)
        self._check_root("gather", opts)
        if (other := self._other(tensor)) is not None:
            return other.gather_single(output, tensor, opts)
        is_root = opts.rootRank == self._rank
        staging = Staging(of.GATHER, [tensor, output] if is_root else [tensor])
        source = staging.block(staging.input(tensor))
        parts: Tuple[int, ...] = ()
        if is_root:
            check_numel("the output of gather", output, tensor.numel() * self._size)
            parts = staging.parts(staging.output(output), [tensor.numel()] * self._size)
        return self._start(of.GATHER, staging, opts, source, parts, [output], root=opts.rootRank)

    gather_into_tensor = gather_single

    def scatter(
        self,
        output_tensors: Any = None,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: Any = None,
        *,
        root: Any = None,
        output_tensor: Any = None,
    ) -> Any:
        outputs, inputs = given(output_tensors, output_tensor), input_tensors
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs] if inputs else []
        opts = options_of(c10d.ScatterOptions, opts, rootRank=given(opts, root), timeout=timeout)
        self._check_root("scatter", opts)
        tensor = only("scatter", "output tensor", outputs)
        if (other := self._other(tensor)) is not None:
            return other.scatter(outputs, inputs, opts)
        is_root = opts.rootRank == self._rank
        sources = only("scatter", "input", inputs) if is_root else []
        if not is_root and inputs:
            raise ArgumentError("gloo_bypass: scatter requires empty input on non-root")
        if is_root:
            self._check_number("scatter", "input", sources)
            for source in sources:
                check_numel("an input of scatter", source, tensor.numel())
        staging = Staging(of.SCATTER, [tensor, *sources])
        blocks = staging.inputs(sources)
        target = staging.block(staging.output(tensor))
        return self._start(of.SCATTER, staging, opts, blocks, target, [tensor], root=opts.rootRank)

    # --- from all to all ---

    def allgather(
        self,
        output_tensors: Any = None,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: Any = None,
        *,
        input_tensor: Any = None,
    ) -> Any:
        outputs, inputs = output_tensors, given(input_tensors, input_tensor)
        if isinstance(inputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        opts = options_of(c10d.AllgatherOptions, opts, timeout=timeout)
        check_pairs("allgather", outputs, inputs)
        if (other := self._other(inputs[0])) is not None:
            return other.allgather(outputs, inputs, opts)
        if len(inputs) > 1:
            return self._all_gather_several(outputs, inputs, opts)
        return self._start_all_gather(outputs[0], inputs[0], opts)

    def _start_all_gather(
        self, targets: Tensors, tensor: torch.Tensor, opts: Any, event: Optional[_profiling.Event] = None
    ) -> Work:
        self._check_number("allgather", "output", targets)
        check_numel("this rank's output of allgather", targets[self._rank], tensor.numel())
        # Which rank has how many elements is the same in all ranks' lists, so they agree on this.
        uneven = any(target.numel() != tensor.numel() for target in targets)
        staging = Staging(of.ALL_GATHER, [tensor, *targets])
        source = staging.block(staging.input(tensor))
        blocks = staging.outputs(targets)
        return self._start(of.ALL_GATHER, staging, opts, source, blocks, targets, uneven=uneven, event=event)

    def allgather_coalesced(self, output_lists: List[Tensors], input_list: Tensors, opts: Any = None) -> Any:
        opts = options_of(c10d.AllgatherOptions, opts)
        if input_list and (other := self._other(input_list[0])) is not None:
            return other.allgather_coalesced(output_lists, input_list, opts)
        turned = self._turned(output_lists, len(input_list))
        result = [tensor for row in output_lists for tensor in row]
        start = self._start_all_gather
        return self._coalesced("allgather_coalesced", of.ALL_GATHER, start, turned, input_list, opts, result)

    def _turned(self, outputs: List[Tensors], inputs: int) -> List[Tensors]:
        """Lists by rank, as PyTorch documents them, turned into lists by input."""
        if len(outputs) != self._size:
            raise ArgumentError(
                f"gloo_bypass: allgather_coalesced: output lists should be equal to world size {self._size}, not "
                f"{len(outputs)}"
            )
        if any(len(row) != inputs for row in outputs):
            raise ArgumentError(f"gloo_bypass: allgather_coalesced: each output list must have {inputs} tensors")
        return [list(column) for column in zip(*outputs)]

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        opts = options_of(c10d.AllgatherOptions, opts)
        if (other := self._other(input)) is not None:
            return other._allgather_base(output, input, opts)
        return self._start_all_gather_single(output, input, opts)

    def _start_all_gather_single(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any, event: Optional[_profiling.Event] = None
    ) -> Work:
        check_numel("the output of all_gather_into_tensor", output, tensor.numel() * self._size)
        staging = Staging(of.ALL_GATHER, [tensor, output])
        source = staging.block(staging.input(tensor))
        parts = staging.parts(staging.output(output), [tensor.numel()] * self._size)
        return self._start(of.ALL_GATHER, staging, opts, source, parts, [output], event=event)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        opts = options_of(c10d.AllgatherOptions, opts)
        if inputs and self._other(inputs[0]) is not None:
            return self._beside.allgather_into_tensor_coalesced(outputs, inputs, opts)
        start = self._start_all_gather_single
        return self._coalesced("allgather_into_tensor_coalesced", of.ALL_GATHER, start, outputs, inputs, opts, outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def alltoall(
        self,
        output_tensors: Any = None,
        input_tensors: Any = None,
        opts: Any = None,
        *,
        output_tensor: Any = None,
        input_tensor: Any = None,
    ) -> Any:
        outputs, inputs = given(output_tensors, output_tensor), given(input_tensors, input_tensor)
        opts = options_of(c10d.AllToAllOptions, opts)
        if outputs and (other := self._other(outputs[0])) is not None:
            return other.alltoall(outputs, inputs, opts)
        self._check_number("all_to_all", "output", outputs)
        self._check_number("all_to_all", "input", inputs)
        check_numel("this rank's own output of all_to_all", outputs[self._rank], inputs[self._rank].numel())
        staging = Staging(of.ALL_TO_ALL, [*inputs, *outputs])
        sources = staging.inputs(inputs)
        targets = staging.outputs(outputs)
        return self._start(of.ALL_TO_ALL, staging, opts, sources, targets, outputs)

    def all_to_all_single(
        self,
        output: Any = None,
        input: Any = None,
        output_split_sizes: Sequence[int] = (),
        input_split_sizes: Sequence[int] = (),
        opts: Any = None,
        timeout: Any = None,
        *,
        output_tensor: Any = None,
        input_tensor: Any = None,
    ) -> Any:
        output, tensor = given(output, output_tensor), given(input, input_tensor)
        opts = options_of(c10d.AllToAllOptions, opts, timeout=timeout)
        if (other := self._other(tensor)) is not None:
            return other.alltoall_base(output, tensor, output_split_sizes, input_split_sizes, opts)
        staging = Staging(of.ALL_TO_ALL, [tensor, output])
        sources = staging.parts(staging.input(tensor), self._split("input", tensor, input_split_sizes))
        targets = staging.parts(staging.output(output), self._split("output", output, output_split_sizes))
        return self._start(of.ALL_TO_ALL, staging, opts, sources, targets, [output])

    alltoall_base = all_to_all_single

    def _split(self, what: str, tensor: torch.Tensor, splits: Sequence[int]) -> List[int]:
        """Elements for each rank, from rows for each."""
        rows = tensor.shape[0] if tensor.dim() > 0 else 1
        if not splits:
            if rows % self._size != 0:
                raise ArgumentError(f"gloo_bypass: all_to_all: {rows} rows of the {what} for {self._size} ranks")
            splits = [rows // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows or min(splits) < 0:
            raise ArgumentError(
                f"gloo_bypass: all_to_all: splits {list(splits)} of {rows} rows of the {what} for {self._size} ranks"
            )
        width = tensor.numel() // rows if rows else 0
        return [split * width for split in splits]

    # --- barriers ---

    def barrier(self, opts: Any = None, timeout: Any = None) -> Any:
        opts = options_of(c10d.BarrierOptions, opts, timeout=timeout)
        device = getattr(opts, "device", None)
        if device is not None and device.type in self._others:
            return self._others[device.type][1].barrier(opts)
        return self._start(of.BARRIER, Staging(of.BARRIER, [torch.empty(0, device="cpu")]), opts, (), (), [])

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """Through the store, so that a rank that does not come costs this barrier only, and rank 0 names it: its time
        counts from when rank 0 comes, and the others wait that long. `timeout` may be seconds; the texts have Gloo's
        words."""
        self._barriers += 1
        limit = self._timeout if timeout is None or timeout == UNSET else timeout
        if not isinstance(limit, datetime.timedelta):
            limit = datetime.timedelta(seconds=limit)
        prefix, store = f"monitored-{self._barriers}", self._own_store
        if self._rank == 0:
            store.set(f"{prefix}/begun", "")
            text = self._let_pass(prefix, limit, wait_all_ranks)
            store.set(f"{prefix}/go", text)
            self._await_readers(prefix)
            if not text:  # all have come to this one, so nobody reads of the one before
                self._forget(f"monitored-{self._barriers - 1}")
            if text:
                raise RuntimeError(f"gloo_bypass: [Rank 0]: {text}")
            return
        store.set(f"{prefix}/{self._rank}", "")
        try:
            await_key(
                store, f"{prefix}/begun", max(milliseconds(limit), self._timeout_ms or milliseconds(self._timeout))
            )
            await_key(store, f"{prefix}/go", milliseconds(limit) + round(1000 * _LONGEST_READ_S))
            # Whoever reaches the store may have written it.
            text = _on_one_line(bytes(store.get(f"{prefix}/go")))
            store.set(f"{prefix}/{self._rank}/has read", "")
        except RuntimeError as error:
            text = str(error)
        if text:
            raise RuntimeError(
                f"gloo_bypass: Rank {self._rank} successfully reached monitoredBarrier, but received errors while "
                f"waiting for send/recv from rank 0: {text}"
            )

    def _let_pass(self, prefix: str, limit: datetime.timedelta, wait_all_ranks: bool) -> str:
        """Rank 0's part of a monitored barrier. Empty, or why nobody may pass."""
        took = f"{round(limit.total_seconds() * 1000)} ms"
        if limit <= datetime.timedelta():
            return f"Rank 0 timed out in monitoredBarrier after {took}"
        end = time.monotonic() + limit.total_seconds()
        missing: List[int] = []
        for rank in range(1, self._size):
            left = max(1, min(round(1000 * (end - time.monotonic())), milliseconds(limit)))
            try:
                await_key(self._own_store, f"{prefix}/{rank}", left)
            except RuntimeError:
                missing.append(rank)
                if not wait_all_ranks:
                    break
        if not missing:
            return ""
        names = ("Rank " if len(missing) == 1 else "Ranks ") + ", ".join(map(str, missing))
        return f"{names} failed to pass monitoredBarrier in {took}"

    def _forget(self, prefix: str) -> None:
        """What a monitored barrier has left in the store, whose server would grow with each."""
        with contextlib.suppress(RuntimeError, NotImplementedError, AttributeError):  # a store that cannot
            for key in ("begun", "go"):
                self._own_store.delete_key(f"{prefix}/{key}")
            for rank in range(1, self._size):
                self._own_store.delete_key(f"{prefix}/{rank}")
                self._own_store.delete_key(f"{prefix}/{rank}/has read")

    def _await_readers(self, prefix: str) -> None:
        """The store may end with rank 0, and the others look only now and then."""
        end = time.monotonic() + _LONGEST_READ_S
        for rank in range(1, self._size):
            if self._own_store.check([f"{prefix}/{rank}"]):
                left = max(0, round(1000 * (end - time.monotonic())))
                with contextlib.suppress(RuntimeError):  # it may have given up
                    await_key(self._own_store, f"{prefix}/{rank}/has read", left)

    # --- messages ---

    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> Any:
        tensor = only("send", "tensor", listed(tensors))
        if (other := self._other(tensor)) is not None:
            return other.send([tensor], dstRank, tag)
        self._check_peer(dstRank)
        staging = Staging(of.BROADCAST, [tensor], at_host=True)
        address, elements = staging.block(staging.input(tensor))
        length = elements // staging.scale * staging.width
        event = _profiling.message_event(self._says, "send", tensor)
        operation = self._door.send(dstRank, tag & _TAGS, address, length, staging.kept)
        return self._message(operation, f"send to rank {dstRank} with tag {tag}", [tensor], None, event)

    def recv(self, tensors: Any, srcRank: int, tag: int = 0) -> Any:
        tensor = only("recv", "tensor", listed(tensors))
        if (other := self._other(tensor)) is not None:
            return other.recv([tensor], srcRank, tag)
        self._check_peer(srcRank)
        return self._receive("recv", tensor, srcRank, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        tensor = only("recv", "tensor", listed(tensors))
        if (other := self._other(tensor)) is not None:
            return other.recv_anysource([tensor], tag)
        return self._receive("recvAnySource", tensor, _ANY_PEER, tag)

    def _receive(self, title: str, tensor: torch.Tensor, peer: int, tag: int) -> Work:
        staging = Staging(of.BROADCAST, [tensor], at_host=True)
        address, elements = staging.block(staging.output(tensor))
        length = elements // staging.scale * staging.width
        event = _profiling.message_event(self._says, title, tensor)
        operation = self._door.receive(peer, tag & _TAGS, address, length, staging.kept)
        sender = "any rank" if peer == _ANY_PEER else f"rank {peer}"
        finish = staging.copy_back if staging.copies else None
        return self._message(operation, f"recv from {sender} with tag {tag}", [tensor], finish, event)

    def _message(self, operation: Any, what: str, *more: Any) -> Work:
        limit_ms = self._timeout_ms or milliseconds(self._timeout)
        return self._begun(Message(operation, limit_ms, self._door.abort, what, *more))

    def _check_peer(self, peer: int) -> None:
        if not 0 <= peer < self._size or peer == self._rank:
            raise ArgumentError(f"gloo_bypass: rank {self._rank} of {self._size} has no peer {peer}")

    # --- coalescing: on the CPU there is nothing to gain, so what is started meanwhile starts at once ---

    def _start_coalescing(self, device_type: Any = "cpu") -> None:
        if (entry := self._others.get(torch.device(device_type).type)) is not None:
            entry[1]._start_coalescing()
        else:
            self._coalesced_works = []

    def _end_coalescing(self, device_type: Any = "cpu") -> Any:
        if (entry := self._others.get(torch.device(device_type).type)) is not None:
            return entry[1]._end_coalescing()
        works, self._coalesced_works = self._coalesced_works or [], None
        return self._join(works, [tensor for work in works for tensor in tensors_in(work._result)])
