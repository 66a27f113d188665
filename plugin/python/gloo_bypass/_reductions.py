"""All-reduce, reduce and reduce-scatter."""

from typing import Any, List, Optional

import torch

from . import _profiling, _tensors as of
from ._calls import Tensors, c10d, check_numel, given, listed, only, options_of
from ._old_torch import set_known
from ._several import Several, check_alike
from ._tensors import ArgumentError, Staging, reduction_of
from ._work import DONE, Work

_OPTIONS = c10d.AllreduceOptions


class Reductions(Several):
    _all_reduce: Any

    def allreduce(
        self, tensors: Any = None, opts: Any = None, timeout: Any = None, *, op: Any = None, tensor: Any = None
    ) -> Any:
        # False where it is not one for the short way: see _short_way.py.
        if not self._queue.pending and "cpu" not in self._others:
            self._sequence += 1
            if begun := self._all_reduce(tensors, opts, self._timeout_ms):
                return DONE if begun is True else self._begun(Work((begun,), [tensors[0]]))
            self._sequence -= 1
        opts = options_of(_OPTIONS, opts, reduceOp=opts if op is None else op, timeout=timeout)
        tensors = listed(given(tensors, tensor))
        check_alike("allreduce", tensors)
        tensor = tensors[0]
        if (other := self._other(tensor)) is not None:
            return other.allreduce(tensors, opts)
        reduction = reduction_of(opts.reduceOp)
        if tensor.is_sparse:
            return self._all_reduce_sparse(tensors, reduction, opts)
        if len(tensors) > 1:
            return self._all_reduce_several(tensors, reduction, opts)
        staging = Staging(of.ALL_REDUCE, [tensor], reduction)
        block = staging.block(staging.both(tensor))
        return self._start(of.ALL_REDUCE, staging, opts, block, block, [tensor], reduction)

    def allreduce_sparse(self, tensors: Tensors, opts: Any = None) -> Any:
        return self.allreduce(tensors, opts)

    def _all_reduce_sparse(self, tensors: Tensors, reduction: int, opts: Any) -> Any:
        """At once, on this thread: it takes several operations, and the later ones depend on the first."""
        if reduction != of.SUM or tensors[0].layout != torch.sparse_coo:
            raise ArgumentError(
                "gloo_bypass: unsupported reduction operation or layout: of sparse tensors, only COO ones, and only "
                "all_reduce with SUM"
            )
        sequence = self._sequence
        own = self._combined(tensors, reduction).coalesce()
        gather = c10d.AllgatherOptions()
        set_known(gather, timeout=opts.timeout, asyncOp=False)
        found = [torch.empty(1, dtype=torch.int64, device="cpu") for _ in range(self._size)]
        self.allgather([found], [torch.tensor([own._nnz()], device="cpu")], gather).wait()
        numbers = [int(number) for number in found]
        pairs: List[Tensors] = []
        for part, along in ((own.indices().t().contiguous(), 1), (own.values(), 0)):
            shape = part.shape[1:]
            parts = [torch.empty((number, *shape), dtype=part.dtype, device=part.device) for number in numbers]
            self._gather_uneven(parts, part, gather).wait()
            pairs.append([each.t() for each in parts] if along == 1 else parts)
        whole = of.sum_sparse(pairs[0], pairs[1], own.shape)
        self._sequence = sequence + 1
        staging = Staging(of.ALL_REDUCE, tensors)
        staging.copies = [(tensor, whole) for tensor in tensors]
        staging.copy_back()
        return Work((), tensors)  # not DONE: DDP takes the tensor from the work's future

    def _gather_uneven(self, outputs: Tensors, tensor: torch.Tensor, opts: Any) -> Work:
        staging = Staging(of.ALL_GATHER, [tensor, *outputs])
        source = staging.block(staging.input(tensor))
        blocks = staging.outputs(outputs)
        return self._start(of.ALL_GATHER, staging, opts, source, blocks, outputs, uneven=True)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Any:
        opts = options_of(c10d.AllreduceCoalescedOptions, opts)
        if not tensors:
            raise ArgumentError("gloo_bypass: allreduce_coalesced requires non-empty tensor list")
        layouts = [tensor.layout for tensor in tensors]
        if layouts.count(layouts[0]) != len(layouts):
            index = next(index for index, layout in enumerate(layouts) if layout != layouts[0])
            raise ArgumentError(
                f"gloo_bypass: allreduce_coalesced: invalid tensor layout at index {index}, {layouts[index]} among "
                f"{layouts[0]}"
            )
        if (other := self._other(tensors[0])) is not None:
            return other.allreduce_coalesced(tensors, opts)
        reduction = reduction_of(opts.reduceOp)
        staging = Staging(of.ALL_REDUCE, tensors, reduction)
        flat = torch.cat([staging.input(tensor).detach().reshape(-1) for tensor in tensors])
        pieces = flat.split([tensor.numel() for tensor in tensors])
        staging.copies = [(tensor, piece.view(tensor.shape)) for tensor, piece in zip(tensors, pieces)]
        block = staging.block(flat)
        return self._start(of.ALL_REDUCE, staging, opts, block, block, tensors, reduction)

    def reduce(
        self,
        tensors: Any = None,
        opts: Any = None,
        op: Any = None,
        timeout: Any = None,
        *,
        root: Any = None,
        tensor: Any = None,
    ) -> Any:
        opts = options_of(c10d.ReduceOptions, opts, rootRank=given(opts, root), reduceOp=op, timeout=timeout)
        tensor = only("reduce", "tensor", listed(given(tensors, tensor)))
        self._check_root("reduce", opts)
        if opts.rootTensor != 0:
            raise ArgumentError(f"gloo_bypass: reduce: invalid root tensor {opts.rootTensor} of 1 tensor")
        if (other := self._other(tensor)) is not None:
            return other.reduce([tensor], opts)
        reduction = reduction_of(opts.reduceOp)
        staging = Staging(of.REDUCE, [tensor], reduction)
        root = opts.rootRank
        is_root = root == self._rank
        block = staging.block(staging.both(tensor) if is_root else staging.input(tensor))
        return self._start(of.REDUCE, staging, opts, block, block if is_root else (), [tensor], reduction, root)

    def reduce_scatter(
        self,
        output_tensors: Any = None,
        input_tensors: Any = None,
        opts: Any = None,
        timeout: Any = None,
        *,
        op: Any = None,
        output: Any = None,
        input: Any = None,
        input_tensor: Any = None,
    ) -> Any:
        outputs, inputs = given(output_tensors, output), given(input_tensors, input, input_tensor)
        if isinstance(outputs, torch.Tensor):
            outputs, inputs = [outputs], [inputs]
        opts = options_of(c10d.ReduceScatterOptions, opts, reduceOp=opts if op is None else op, timeout=timeout)
        output = only("reduce_scatter", "output tensor", outputs)
        parts = only("reduce_scatter", "input", inputs)
        if (other := self._other(output)) is not None:
            return other.reduce_scatter(outputs, inputs, opts)
        self._check_number("reduce_scatter", "input", parts)
        check_numel("the output of reduce_scatter", output, parts[self._rank].numel())
        reduction = reduction_of(opts.reduceOp)
        staging = Staging(of.REDUCE_SCATTER, [output, *parts], reduction)
        blocks = staging.inputs(parts)
        target = staging.block(staging.output(output))
        return self._start(of.REDUCE_SCATTER, staging, opts, blocks, target, [output], reduction)

    def reduce_scatter_single(self, outputTensor: torch.Tensor, inputTensor: torch.Tensor, opts: Any = None) -> Any:
        opts = options_of(c10d.ReduceScatterOptions, opts)
        if (other := self._other(outputTensor)) is not None:
            return other._reduce_scatter_base(outputTensor, inputTensor, opts)
        return self._start_reduce_scatter(outputTensor, inputTensor, opts)

    def _start_reduce_scatter(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any, event: Optional[_profiling.Event] = None
    ) -> Work:
        check_numel("the input of reduce_scatter", tensor, output.numel() * self._size)
        reduction = reduction_of(opts.reduceOp)
        staging = Staging(of.REDUCE_SCATTER, [output, tensor], reduction)
        parts = staging.parts(staging.input(tensor), [output.numel()] * self._size)
        target = staging.block(staging.output(output))
        return self._start(of.REDUCE_SCATTER, staging, opts, parts, target, [output], reduction, event=event)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        opts = options_of(c10d.ReduceScatterOptions, opts)
        if outputs and self._other(outputs[0]) is not None:
            return self._beside.reduce_scatter_tensor_coalesced(outputs, inputs, opts)
        start = self._start_reduce_scatter
        return self._coalesced(
            "reduce_scatter_tensor_coalesced", of.REDUCE_SCATTER, start, outputs, inputs, opts, outputs
        )

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
