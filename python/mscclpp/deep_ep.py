"""Dispatch and combine for mixtures of experts with the interface of DeepEP's low-latency kernels, for torch.

    import mscclpp.deep_ep as deep_ep  # in place of: import deep_ep

    buffer = deep_ep.Buffer(group, num_rdma_bytes=deep_ep.Buffer.get_low_latency_rdma_size_hint(128, 7168, size, 256), low_latency_mode=True)
    rows, count, handle, event, hook = buffer.low_latency_dispatch(x, topk_idx, 128, 256)
    combined, event, hook = buffer.low_latency_combine(experts(rows, count), topk_idx, topk_weights, handle)

Tensors are on GPUs or on CPU. Names, layouts, handles and hooks are DeepEP's; where they differ:

- Rows of an expert are in the order of ranks and tokens in each run, and results are the same bit for bit.
- A call of ``low_latency_dispatch`` may have ``topk_weights``: combine is faster then, since it need not bring them. ``x`` may be a pair of rows
  of float8_e4m3fn and their scales.
- ``num_experts`` need not be a multiple of the number of ranks: the last ranks have fewer.
- The first call for larger sizes, or another number of experts, is collective and allocates memory: it cannot be captured into a graph.
- The high-throughput kernels, masks of ranks, LogFMT and statistics of waiting are refused.

``torch.ops.mscclpp.moe_dispatch`` and ``moe_combine`` are the same calls for torch.compile.
"""

from __future__ import annotations

import weakref

import torch
import torch.distributed as dist

from . import _errors, _torch_group, moe
from ._unique_id import UniqueId

TYPE_CHECKING = False  # checkers of types take it for true
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Buffer", "EventHandle", "EventOverlap", "Handle", "topk_idx_t"]

topk_idx_t = torch.int64
_FP8 = torch.float8_e4m3fn
_buffers: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # by number, for operators


def _unsupported(text: str) -> _errors.Error:
    return _errors.make(2, text)


class EventHandle:
    """An event behind the work of the current stream; on CPU there is nothing to wait for."""

    def __init__(self, stream: torch.Stream | None = None) -> None:
        self.event = None
        if stream is not None or torch.cuda.is_available():
            self.event = torch.cuda.Event()
            self.event.record(stream if stream is not None else torch.cuda.current_stream())

    def current_stream_wait(self) -> None:
        """Have the current stream wait for the event."""
        if self.event is not None:
            torch.cuda.current_stream().wait_event(self.event)


class EventOverlap:
    """An event for which the current stream waits, when asked to or at the end of a ``with``; it keeps tensors until then."""

    def __init__(self, event: EventHandle | None = None, extra_tensors: tuple | None = None) -> None:
        self.event, self.extra_tensors = event, extra_tensors

    def current_stream_wait(self) -> None:
        """Have the current stream wait for the event."""
        if self.event is None:
            raise _errors.invalid("EventOverlap: there is no event: expected a call with async_finish")
        self.event.current_stream_wait()

    def __enter__(self) -> EventOverlap:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.event is not None:
            self.event.current_stream_wait()


class Handle(tuple):
    """What combine has to know of a dispatch: DeepEP's five parts, the records of its rows, the tokens, and the memory that the rows came by."""

    records: torch.Tensor
    weighted: bool
    tokens: int
    experts: moe.Experts

    def __new__(cls, parts: tuple, records: torch.Tensor, weighted: bool, tokens: int, experts: moe.Experts) -> Handle:
        self = super().__new__(cls, parts)
        self.records, self.weighted, self.tokens, self.experts = records, weighted, tokens, experts
        return self


class Buffer:
    """Memory that the ranks of a group have opened to each other, for dispatch and combine. Collective.

    Args:
        group: a process group of torch.distributed, of any backend.
        num_nvl_bytes: of the high-throughput kernels, which there are not: ignored.
        num_rdma_bytes: the most memory that the buffer may take, of which it takes what calls need; 0: there is no limit.
        low_latency_mode: expected to be true.
        num_qps_per_rank: ignored, as are the next two.
        allow_nvlink_for_low_latency_mode: memory of peers is always reached directly.
        allow_mnnvl: the same.
        explicitly_destroy: destroy is called; else the memory is released with the object.
        enable_shrink: masks of ranks, which are refused.
        comm: a communicator of mpi4py in place of the group.
        device: "cpu", or a GPU; None: the current GPU if the program has one, else "cpu".
    """

    num_sms: int = 20

    def __init__(self, group: dist.ProcessGroup | None, num_nvl_bytes: int = 0, num_rdma_bytes: int = 0, low_latency_mode: bool = False,
                 num_qps_per_rank: int = 24, allow_nvlink_for_low_latency_mode: bool = True, allow_mnnvl: bool = False,
                 explicitly_destroy: bool = False, enable_shrink: bool = False, comm: object = None, *, device: str | torch.device | None = None) -> None:
        if enable_shrink:
            raise _unsupported("deep_ep.Buffer: enable_shrink: masks of ranks are not there: a rank that ends, ends the calls of the others")
        if group is None and comm is None:
            raise _errors.invalid("deep_ep.Buffer: expected a group, or a communicator of mpi4py")
        self._device = _torch_group.device_of(device)
        if group is not None:
            self._comm = _torch_group.communicator(group, self._device)
        else:
            rank = comm.Get_rank()
            own = comm.bcast(UniqueId.create().bytes if rank == 0 else None, root=0)
            self._comm = _torch_group.joined(own, rank, comm.Get_size(), self._device)
        self.group, self.rank, self.group_size = group if group is not None else comm, self._comm.rank, self._comm.size
        self.num_nvl_bytes, self.num_rdma_bytes, self.low_latency_mode, self.explicitly_destroy = num_nvl_bytes, num_rdma_bytes, low_latency_mode, explicitly_destroy
        self.enable_shrink = False
        self._experts: moe.Experts | None = None
        self._side: torch.cuda.Stream | None = None
        self._combine_rows: torch.Tensor | None = None
        self.number = max(_buffers, default=0) + 1
        _buffers[self.number] = self

    def destroy(self) -> None:
        """Release the memory. Calls of other ranks that need this one fail."""
        if self._comm is not None:
            self._comm.close()
        self._comm = self._experts = self._combine_rows = None

    def __del__(self) -> None:
        if getattr(self, "_comm", None) is not None and not self.explicitly_destroy:
            self.destroy()

    @staticmethod
    def is_sm90_compiled() -> bool:
        """Return whether there are kernels for sm_90: always."""
        return True

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        """Note the SMs of the high-throughput kernels; low-latency kernels choose their own."""
        Buffer.num_sms = new_num_sms

    @staticmethod
    def capture() -> EventOverlap:
        """Return an event behind the work of the current stream."""
        return EventOverlap(EventHandle())

    @staticmethod
    def get_low_latency_rdma_size_hint(num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int, num_experts: int) -> int:
        """Return how much memory calls of these sizes take on each rank: four rows for each token of each rank, and a few hundred bytes."""
        return moe.sizes(num_max_dispatch_tokens_per_rank, hidden, num_experts, num_ranks)[0]

    def get_comm_stream(self) -> torch.Stream:
        """Return the stream of calls with async_finish."""
        if self._side is None:
            self._side = torch.cuda.Stream(self._device)
        return self._side

    def clean_low_latency_buffer(self, num_max_dispatch_tokens_per_rank: int, hidden: int, num_experts: int) -> None:
        """Do nothing: no other kernels use the memory."""

    def low_latency_dispatch(self, x: torch.Tensor | tuple[torch.Tensor, torch.Tensor], topk_idx: torch.Tensor, num_max_dispatch_tokens_per_rank: int, num_experts: int,
                             cumulative_local_expert_recv_stats: torch.Tensor | None = None, dispatch_wait_recv_cost_stats: torch.Tensor | None = None,
                             use_fp8: bool = True, round_scale: bool = False, use_ue8m0: bool = False, async_finish: bool = False,
                             return_recv_hook: bool = False, *, topk_weights: torch.Tensor | None = None) -> tuple:
        """Send the rows of tokens to the ranks of their experts.

        Args:
            x: bfloat16 [tokens, hidden], or float8_e4m3fn and its scales, float32 [tokens, scales].
            topk_idx: int64 or int32 [tokens, k]: experts; -1 is none.
            num_max_dispatch_tokens_per_rank: the most tokens of a rank.
            num_experts: of all ranks.
            cumulative_local_expert_recv_stats: int32 [local experts], to which the numbers of rows are added.
            dispatch_wait_recv_cost_stats: refused.
            use_fp8: rows become float8_e4m3fn, with a scale for 128 elements.
            round_scale: scales are powers of two.
            use_ue8m0: and are given out as exponents, four in an int32.
            async_finish: the call is on a stream of its own, and the event is behind it.
            return_recv_hook: only send; the hook receives.
            topk_weights: float32 [tokens, k]: weights for combine.

        Returns:
            The rows [local experts, ranks * num_max_dispatch_tokens_per_rank, hidden], with their scales if they are float8_e4m3fn; the numbers of
            rows; the handle for combine; the event; the hook.
        """
        rows, scales = x if isinstance(x, (tuple, list)) else (x, None)
        if dispatch_wait_recv_cost_stats is not None:
            raise _unsupported("low_latency_dispatch: dispatch_wait_recv_cost_stats: expected None")
        self._check(async_finish, return_recv_hook)
        self._beside("low_latency_dispatch", "x", rows)
        format = _check_dispatch(rows, scales, topk_idx, topk_weights, num_max_dispatch_tokens_per_rank, use_fp8, round_scale, use_ue8m0,
                                 cumulative_local_expert_recv_stats, -(-num_experts // self.group_size))
        experts = self._space(num_max_dispatch_tokens_per_rank, rows.shape[1], num_experts)
        out = _outputs(experts.local, self.group_size, num_max_dispatch_tokens_per_rank, experts.handle_bytes, rows, scales, use_fp8, use_ue8m0)
        received, out_scales, sources, ranges, count, records = out
        at = _addresses(input=rows, scales=scales, indices=topk_idx, weights=topk_weights, output=received, output_scales=out_scales, sources=sources,
                        ranges=ranges, received=count, statistics=cumulative_local_expert_recv_stats, handle=records)
        slots = self.group_size * num_max_dispatch_tokens_per_rank

        def call(phase, ticket, stream):
            return experts._dispatch(at, rows.shape[0], rows.shape[1], topk_idx.shape[1], topk_idx.dtype == torch.int64, format,
                                     scales.shape[1] if scales is not None else 0, round_scale, use_ue8m0, slots, phase, ticket, stream)

        kept = (rows, scales, topk_idx, topk_weights, *out, cumulative_local_expert_recv_stats)
        event, hook = self._issue(call, kept, async_finish, return_recv_hook)
        handle = Handle((sources, ranges, num_max_dispatch_tokens_per_rank, rows.shape[1], num_experts), records, topk_weights is not None, rows.shape[0], experts)
        return received if out_scales is None else (received, out_scales), count, handle, event, hook

    def low_latency_combine(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor | None, handle: tuple, use_logfmt: bool = False,
                            zero_copy: bool = False, async_finish: bool = False, return_recv_hook: bool = False, out: torch.Tensor | None = None,
                            combine_wait_recv_cost_stats: torch.Tensor | None = None) -> tuple:
        """Add up the weighted rows of experts for each token.

        Args:
            x: bfloat16 [local experts, ranks * num_max_dispatch_tokens_per_rank, hidden].
            topk_idx: as for the dispatch.
            topk_weights: float32 [tokens, k]; not looked at if the dispatch has brought them.
            handle: of the dispatch.
            use_logfmt: refused.
            zero_copy: the rows are in the tensor of get_next_low_latency_combine_buffer.
            async_finish: the call is on a stream of its own, and the event is behind it.
            return_recv_hook: only send; the hook receives.
            out: bfloat16 [tokens, hidden], for the result.
            combine_wait_recv_cost_stats: refused.

        Returns:
            The sums, bfloat16 [tokens, hidden]; the event; the hook.
        """
        if use_logfmt or combine_wait_recv_cost_stats is not None:
            raise _unsupported("low_latency_combine: use_logfmt and combine_wait_recv_cost_stats: expected none of them")
        self._check(async_finish, return_recv_hook)
        experts = self._of(handle)
        _, _, most, hidden, _ = handle
        if zero_copy:
            x = self.get_next_low_latency_combine_buffer(handle)
        weighted, records = handle.weighted, handle.records
        self._beside("low_latency_combine", "x", x)
        if topk_idx.dim() != 2 or topk_idx.shape[0] != handle.tokens:
            raise _refused("low_latency_combine", "topk_idx", topk_idx, f"that of the dispatch, with {handle.tokens} tokens")
        if not weighted and topk_weights is None:
            raise _errors.invalid("low_latency_combine: topk_weights: None: expected weights, as the dispatch has brought none")
        if out is None:
            out = torch.empty((topk_idx.shape[0], hidden), dtype=torch.bfloat16, device=topk_idx.device)
        _check_combine(x, topk_idx, None if weighted else topk_weights, out, experts.local, self.group_size * most, hidden)
        at = _addresses(input=x, indices=topk_idx, weights=None if weighted else topk_weights, handle=records, output=out)

        def call(phase, ticket, stream):
            return experts._combine(at, topk_idx.shape[0], hidden, topk_idx.shape[1], topk_idx.dtype == torch.int64, weighted, self.group_size * most,
                                    phase, ticket, stream)

        event, hook = self._issue(call, (x, topk_idx, topk_weights, records, out), async_finish, return_recv_hook)
        return out, event, hook

    def get_next_low_latency_combine_buffer(self, handle: tuple) -> torch.Tensor:
        """Return a tensor for the rows of experts, of which a combine with zero_copy takes them."""
        _, _, most, hidden, num_experts = handle
        shape = (-(-num_experts // self.group_size), self.group_size * most, hidden)
        if self._combine_rows is None or self._combine_rows.shape != shape:
            self._combine_rows = torch.empty(shape, dtype=torch.bfloat16, device=self._device)
        return self._combine_rows

    def _check(self, async_finish: bool, return_recv_hook: bool) -> None:
        if not self.low_latency_mode:
            raise _errors.invalid("deep_ep.Buffer: low_latency_mode=False: expected True for low-latency calls")
        if async_finish and return_recv_hook:
            raise _errors.invalid("deep_ep.Buffer: async_finish and return_recv_hook: expected one of them at most")

    def _beside(self, op: str, name: str, tensor: torch.Tensor) -> None:
        """Refuse a tensor on another device than the buffer's."""
        if self._comm is not None and not _torch_group.beside(self._comm, tensor):
            raise _refused(op, name, tensor, f"a tensor on the device of the buffer, {self._comm.device}")

    def _of(self, handle: tuple) -> moe.Experts:
        """Return the memory that the rows of a handle came by, if it is that of the next calls."""
        if not isinstance(handle, Handle):
            raise _errors.invalid("low_latency_combine: handle: expected that of low_latency_dispatch, as it was returned")
        if self._comm is None:
            raise _errors.make(5, "deep_ep.Buffer: it was destroyed")
        if handle.experts is not self._experts:
            raise _errors.invalid("low_latency_combine: handle: of another buffer, or of a dispatch before this buffer was made larger: expected a handle of a dispatch since then")
        return handle.experts

    def _space(self, tokens: int, hidden: int, experts: int) -> moe.Experts:
        """Return the memory for calls of these sizes; the first call of all ranks makes it."""
        if self._comm is None:
            raise _errors.make(5, "deep_ep.Buffer: it was destroyed")
        now = self._experts
        if now is not None and now.experts == experts and tokens <= now.tokens and hidden <= now.hidden:
            return now
        if now is not None:
            tokens, hidden = max(tokens, now.tokens), max(hidden, now.hidden)
        need = self.get_low_latency_rdma_size_hint(tokens, hidden, self.group_size, experts)
        if self.num_rdma_bytes and need > self.num_rdma_bytes:
            raise _errors.invalid(f"deep_ep.Buffer: num_rdma_bytes={self.num_rdma_bytes}: expected {need} for {tokens} tokens of {hidden} elements and {experts} experts")
        if now is not None:
            now.close()
        self._experts = moe.Experts(self._comm, tokens, hidden, experts)
        return self._experts

    def _issue(self, call: Callable, kept: tuple, async_finish: bool, return_recv_hook: bool) -> tuple:
        """Make a call, in two phases for a hook; return the event and the hook."""
        if self._device.type == "cpu":
            if not return_recv_hook:
                call(moe.Phase.WHOLE, 0, 0)
                return EventOverlap(EventHandle() if async_finish else None), None
            ticket = call(moe.Phase.SEND, 0, 0)
            return EventOverlap(), _hook(call, ticket, 0, kept)
        current = torch.cuda.current_stream(self._device)
        if return_recv_hook:
            ticket = call(moe.Phase.SEND, 0, current.cuda_stream)
            return EventOverlap(), _hook(call, ticket, current.cuda_stream, kept)
        if not async_finish:
            call(moe.Phase.WHOLE, 0, current.cuda_stream)
            return EventOverlap(), None
        side = self.get_comm_stream()
        side.wait_stream(current)
        call(moe.Phase.WHOLE, 0, side.cuda_stream)
        return EventOverlap(EventHandle(side), kept), None

    def _refuse(self, name: str):
        raise _unsupported(f"deep_ep.Buffer.{name}: the high-throughput kernels and masks of ranks are not there: expected low_latency_dispatch and low_latency_combine")

    def get_dispatch_layout(self, *arguments: object, **named: object) -> None:
        """Refuse: it is of the high-throughput kernels."""
        self._refuse("get_dispatch_layout")

    def dispatch(self, *arguments: object, **named: object) -> None:
        """Refuse: it is of the high-throughput kernels."""
        self._refuse("dispatch")

    def combine(self, *arguments: object, **named: object) -> None:
        """Refuse: it is of the high-throughput kernels."""
        self._refuse("combine")

    def low_latency_update_mask_buffer(self, rank_to_mask: int, mask: bool = False) -> None:
        """Refuse: there are no masks."""
        self._refuse("low_latency_update_mask_buffer")

    def low_latency_query_mask_buffer(self, mask_status: torch.Tensor) -> None:
        """Write that no rank is masked."""
        mask_status.zero_()

    def low_latency_clean_mask_buffer(self) -> None:
        """Do nothing: there are no masks."""


def _hook(call: Callable, ticket: int, stream: int, kept: tuple) -> Callable[[], None]:
    def hook() -> None:
        call(moe.Phase.RECEIVE, ticket, stream)

    hook.kept = kept  # the buffers of the call, until the hook is gone
    return hook


def _addresses(**tensors) -> dict:
    """Return where tensors are. One without elements is somewhere, too: ranks without tokens make the call of the others."""
    return {name: tensor.data_ptr() or 256 for name, tensor in tensors.items() if tensor is not None}


def _outputs(local: int, ranks: int, most: int, handle_bytes: int, rows: torch.Tensor, scales: torch.Tensor | None, use_fp8: bool, use_ue8m0: bool) -> tuple:
    """Return tensors for the results of a dispatch."""
    hidden, slots, device = rows.shape[-1], ranks * most, rows.device
    eight = use_fp8 or scales is not None
    received = torch.empty((local, slots, hidden), dtype=_FP8 if eight else torch.bfloat16, device=device)
    out_scales = None
    if eight:
        each = scales.shape[-1] if scales is not None else hidden // 128
        shape, kind = ((local, each // 4, slots), torch.int32) if use_ue8m0 else ((local, each, slots), torch.float32)
        out_scales = torch.empty(shape, dtype=kind, device=device).transpose(1, 2)
    return (received, out_scales, torch.empty((local, slots), dtype=torch.int32, device=device), torch.empty((local, ranks), dtype=torch.int64, device=device),
            torch.empty((local,), dtype=torch.int32, device=device), torch.empty((handle_bytes,), dtype=torch.uint8, device=device))


def _refused(op: str, name: str, tensor: torch.Tensor, expected: str) -> _errors.Error:
    return _errors.invalid(f"{op}: {name} has {tensor.dtype}, shape {tuple(tensor.shape)}, strides {tuple(tensor.stride())} on {tensor.device}: expected {expected}")


def _check_chosen(op: str, topk_idx: torch.Tensor, topk_weights: torch.Tensor | None, tokens: int, device: torch.device) -> None:
    if topk_idx.dtype not in (torch.int64, torch.int32) or topk_idx.dim() != 2 or topk_idx.shape[0] != tokens or topk_idx.device != device or not topk_idx.is_contiguous():
        raise _refused(op, "topk_idx", topk_idx, f"int64 or int32, ({tokens}, k) without gaps on {device}")
    if topk_weights is not None and (topk_weights.dtype != torch.float32 or topk_weights.shape != topk_idx.shape or topk_weights.device != device or not topk_weights.is_contiguous()):
        raise _refused(op, "topk_weights", topk_weights, f"float32, {tuple(topk_idx.shape)} without gaps on {device}")


def _check_dispatch(rows, scales, topk_idx, topk_weights, most, use_fp8, round_scale, use_ue8m0, statistics, local) -> moe.Format:
    """Refuse tensors that the kernels do not take; return the format of the rows."""
    op = "low_latency_dispatch"
    kind = torch.bfloat16 if scales is None else _FP8
    if rows.dtype != kind or rows.dim() != 2 or not rows.is_contiguous() or rows.shape[0] > most:
        raise _refused(op, "x", rows, f"{kind}, at most {most} rows without gaps")
    if scales is not None and (scales.dtype != torch.float32 or scales.dim() != 2 or scales.shape[0] != rows.shape[0] or not scales.is_contiguous() or scales.device != rows.device):
        raise _refused(op, "scales", scales, f"float32, ({rows.shape[0]}, scales of a row) without gaps on {rows.device}")
    if statistics is not None and (statistics.dtype != torch.int32 or tuple(statistics.shape) != (local,) or statistics.device != rows.device or not statistics.is_contiguous()):
        raise _refused(op, "cumulative_local_expert_recv_stats", statistics, f"int32, ({local},) on {rows.device}")
    if use_ue8m0 and not round_scale:
        raise _errors.invalid(f"{op}: use_ue8m0 without round_scale: expected both")
    _check_chosen(op, topk_idx, topk_weights, rows.shape[0], rows.device)
    if scales is not None:
        return moe.Format.GIVEN_E4M3
    return moe.Format.CAST_E4M3 if use_fp8 else moe.Format.BFLOAT16


def _check_combine(x, topk_idx, topk_weights, out, local, slots, hidden) -> None:
    op = "low_latency_combine"
    if x.dtype != torch.bfloat16 or tuple(x.shape) != (local, slots, hidden) or not x.is_contiguous() or x.device != topk_idx.device:
        raise _refused(op, "x", x, f"bfloat16, {(local, slots, hidden)} without gaps on {topk_idx.device}")
    if out.dtype != torch.bfloat16 or tuple(out.shape) != (topk_idx.shape[0], hidden) or not out.is_contiguous() or out.device != x.device:
        raise _refused(op, "out", out, f"bfloat16, {(topk_idx.shape[0], hidden)} without gaps on {x.device}")
    _check_chosen(op, topk_idx, topk_weights, topk_idx.shape[0], x.device)


def _check_records(records, experts, most, x, num_experts) -> None:
    """Refuse what is not the records of a dispatch through this memory, as far as they tell."""
    if experts is None or experts.experts != num_experts or most > experts.tokens or x.shape[-1] > experts.hidden:
        raise _errors.invalid(f"moe_combine: records of {most} tokens of {x.shape[-1]} elements and {num_experts} experts: expected those of a moe_dispatch of the same buffer")
    if records.dtype != torch.uint8 or records.numel() != experts.handle_bytes or records.device != x.device or not records.is_contiguous():
        raise _refused("moe_combine", "records", records, f"torch.uint8, ({experts.handle_bytes},) on {x.device}, as moe_dispatch has returned them")


def _numbered(number: int) -> Buffer:
    found = _buffers.get(number)
    if found is None:
        raise _errors.invalid(f"torch.ops.mscclpp: buffer {number}: expected the attribute number of a deep_ep.Buffer")
    return found


@torch.library.custom_op("mscclpp::moe_dispatch", mutates_args=())
def moe_dispatch(x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor | None, max_tokens: int, num_experts: int, use_fp8: bool, round_scale: bool,
                 use_ue8m0: bool, buffer: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the rows of experts, their scales (empty without use_fp8), the numbers of rows, sources, ranges, and records for moe_combine."""
    rows, count, handle, _, _ = _numbered(buffer).low_latency_dispatch(x, topk_idx, max_tokens, num_experts, use_fp8=use_fp8, round_scale=round_scale, use_ue8m0=use_ue8m0,
                                                                       topk_weights=topk_weights)
    rows, scales = rows if use_fp8 else (rows, torch.empty(0, dtype=torch.float32, device=x.device))
    return rows, scales, count, handle[0], handle[1], handle.records


@moe_dispatch.register_fake
def _(x, topk_idx, topk_weights, max_tokens, num_experts, use_fp8, round_scale, use_ue8m0, buffer):
    space = _numbered(buffer)
    local = -(-num_experts // space.group_size)
    _check_dispatch(x, None, topk_idx, topk_weights, max_tokens, use_fp8, round_scale, use_ue8m0, None, local)
    held = space._experts.handle_bytes if space._experts is not None else moe.sizes(max_tokens, x.shape[-1], num_experts, space.group_size)[1]
    rows, scales, sources, ranges, count, records = _outputs(local, space.group_size, max_tokens, held, x, None, use_fp8, use_ue8m0)
    return rows, torch.empty(0, dtype=torch.float32, device=x.device) if scales is None else scales, count, sources, ranges, records


@torch.library.custom_op("mscclpp::moe_combine", mutates_args=())
def moe_combine(x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor | None, records: torch.Tensor, max_tokens: int, num_experts: int,
                buffer: int) -> torch.Tensor:
    """Return the sums of weight times row; without topk_weights, those that the dispatch has brought."""
    space = _numbered(buffer)
    experts = space._experts
    _check_records(records, experts, max_tokens, x, num_experts)
    handle = Handle((None, None, max_tokens, x.shape[-1], num_experts), records, topk_weights is None, topk_idx.shape[0], experts)
    return space.low_latency_combine(x, topk_idx, topk_weights, handle)[0]


@moe_combine.register_fake
def _(x, topk_idx, topk_weights, records, max_tokens, num_experts, buffer):
    return torch.empty((topk_idx.shape[0], x.shape[-1]), dtype=torch.bfloat16, device=x.device)
