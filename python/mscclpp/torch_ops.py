"""Operators for torch: importing this module registers torch.ops.mscclpp.

    import mscclpp.torch_ops

    mscclpp.torch_ops.enable()  # once, on all ranks of the group
    out, residual = torch.ops.mscclpp.all_reduce_rms_norm(x, residual, weight, 1e-6, "")

They take tensors on GPUs and on CPU, are traced by torch.compile, and recorded into CUDA graphs. A group may have any backend. Names of
groups are those of torch ("" is the default group), as functional collectives have them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from . import _errors, _torch_group, _types
from .inference import Norm, Quantization, Rows, Workspace

__all__ = ["disable", "enable", "fused"]

_CODES = {torch.float16: _types.data_type("float16"), torch.bfloat16: _types.data_type("bfloat16"), torch.float32: _types.data_type("float32")}
_spaces: dict = {}  # by name of the group, and kind of device
_OUTPUTS = {Quantization.E4M3_PER_TOKEN: torch.float8_e4m3fn, Quantization.E4M3_PER_TENSOR: torch.float8_e4m3fn,
            Quantization.INT8_PER_TOKEN: torch.int8, Quantization.INT8_PER_TENSOR: torch.int8}


def _name(group) -> str:
    """Return the name of a group, "" for the default one."""
    if group is None or group is dist.group.WORLD or group == "":
        return ""
    name = group if isinstance(group, str) else group.group_name
    return "" if dist.is_initialized() and name == dist.group.WORLD.group_name else name


def enable(group: dist.ProcessGroup | str | None = None, *, device: str | torch.device | None = None, scratch_bytes: int = 0) -> None:
    """Prepare the operators for a group. Collective: all ranks of the group call it.

    Args:
        group: a process group of torch.distributed, of any backend; None for the default one.
        device: "cpu", or a GPU; None: the current GPU if the program has one, else "cpu".
        scratch_bytes: as Workspace has it.
    """
    device = _torch_group.device_of(device)
    key = _name(group), device.type
    if key in _spaces:
        return
    _spaces[key] = Workspace(_torch_group.communicator(group, device), scratch_bytes)


def disable(group: dist.ProcessGroup | str | None = None) -> None:
    """End what enable has made for a group: before it is destroyed."""
    for key in [k for k in _spaces if k[0] == _name(group)]:
        _spaces.pop(key)._comm.close()


def _space(group: str, like: torch.Tensor) -> Workspace:
    found = _spaces.get((_name(group), like.device.type))
    if found is None:
        raise _errors.invalid(f"torch.ops.mscclpp: group {group!r} on {like.device.type}: expected that mscclpp.torch_ops.enable was called for it")
    if not _torch_group.beside(found._comm, like):
        raise _errors.invalid(f"torch.ops.mscclpp: group {group!r}: a tensor on {like.device}: expected one on {found._comm.device}, for which enable was called")
    return found


def _check(input, residual, weight, bias=None) -> None:
    """Refuse tensors that the kernels do not take; also while torch traces."""
    if input.dtype not in _CODES:
        raise _errors.invalid(f"all_reduce_rms_norm: input has {input.dtype}: expected float16, bfloat16 or float32")
    hidden = input.shape[-1] if input.dim() > 0 else 0
    for name, tensor, shape in (("residual", residual, input.shape), ("weight", weight, (hidden,)), ("bias", bias, (hidden,))):
        if tensor is None:
            continue
        if tensor.dtype != input.dtype or tuple(tensor.shape) != tuple(shape) or tensor.device != input.device:
            raise _errors.invalid(f"all_reduce_rms_norm: {name} has {tensor.dtype}, shape {tuple(tensor.shape)} on {tensor.device}: "
                                  f"expected {input.dtype}, {tuple(shape)} on {input.device}")
    for name, tensor in (("input", input), ("residual", residual), ("weight", weight), ("bias", bias)):
        if tensor is not None and not tensor.is_contiguous():
            raise _errors.invalid(f"all_reduce_rms_norm: {name} with strides {tuple(tensor.stride())}: expected rows without gaps; make a copy first")


def _run(group, input, residual, weight, epsilon, output, residual_out, norm=0, bias=None, quantization=0, scales=None, scale=None,
         rows=Rows.ALL, tokens=None) -> None:
    hidden = input.shape[-1]
    at = {"input": input.data_ptr(), "output": output.data_ptr()}
    for name, tensor in (("weight", weight), ("residual", residual), ("bias", bias), ("residual_out", residual_out), ("scales", scales), ("scale", scale)):
        if tensor is not None:
            at[name] = tensor.data_ptr()
    stream = torch.cuda.current_stream(input.device).cuda_stream if input.is_cuda else 0
    if tokens is None:
        tokens = input.numel() // hidden if hidden else 0
    _space(group, input)._norm(at, tokens, hidden, _CODES[input.dtype], epsilon, norm, quantization, 0, stream, rows)


@torch.library.custom_op("mscclpp::all_reduce_rms_norm", mutates_args=())
def all_reduce_rms_norm(input: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, epsilon: float,
                        group: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the RMSNorm of the sum of the inputs of all ranks and the residual, and that sum."""
    _check(input, residual, weight)
    output, residual_out = torch.empty_like(input), torch.empty_like(input)
    _run(group, input, residual, weight, epsilon, output, residual_out)
    return output, residual_out


@all_reduce_rms_norm.register_fake
def _(input, residual, weight, epsilon, group):
    _check(input, residual, weight)
    return torch.empty_like(input), torch.empty_like(input)


@torch.library.custom_op("mscclpp::all_reduce_rms_norm_", mutates_args=("input", "residual"))
def all_reduce_rms_norm_(input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float, group: str) -> None:
    """Make the same in place: input becomes the norm, residual the sum."""
    _check(input, residual, weight)
    _run(group, input, residual, weight, epsilon, input, residual)


@all_reduce_rms_norm_.register_fake
def _(input, residual, weight, epsilon, group):
    _check(input, residual, weight)


@torch.library.custom_op("mscclpp::all_reduce_layer_norm", mutates_args=())
def all_reduce_layer_norm(input: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, bias: torch.Tensor | None,
                          epsilon: float, group: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the LayerNorm of the sum of the inputs of all ranks and the residual, and that sum."""
    _check(input, residual, weight, bias)
    output, residual_out = torch.empty_like(input), torch.empty_like(input)
    _run(group, input, residual, weight, epsilon, output, residual_out, norm=1, bias=bias)
    return output, residual_out


@all_reduce_layer_norm.register_fake
def _(input, residual, weight, bias, epsilon, group):
    _check(input, residual, weight, bias)
    return torch.empty_like(input), torch.empty_like(input)


def _quantized(input, scale, kind: Quantization):
    """Return the outputs of a quantized norm: bytes, the scales of rows, and the sum."""
    if kind.per_token != (scale is None):
        raise _errors.invalid("all_reduce_rms_norm_quant: a scale for quantization per tensor, and none per token, whose scales are results")
    rows = input.shape[:-1]
    scales = torch.empty((*rows, 1), dtype=torch.float32, device=input.device) if scale is None else scale.clone()
    return torch.empty(input.shape, dtype=_OUTPUTS[kind], device=input.device), scales, torch.empty_like(input)


def _kind(dtype: torch.dtype, scale) -> Quantization:
    if dtype == torch.float8_e4m3fn:
        return Quantization.E4M3_PER_TOKEN if scale is None else Quantization.E4M3_PER_TENSOR
    if dtype == torch.int8:
        return Quantization.INT8_PER_TOKEN if scale is None else Quantization.INT8_PER_TENSOR
    raise _errors.invalid(f"all_reduce_rms_norm_quant: {dtype}: expected float8_e4m3fn or int8")


@torch.library.custom_op("mscclpp::all_reduce_rms_norm_quant", mutates_args=())
def all_reduce_rms_norm_quant(input: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, epsilon: float, dtype: torch.dtype,
                              scale: torch.Tensor | None, group: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the quantized RMSNorm, its scales (a copy of scale where one is given) and the sum."""
    kind = _kind(dtype, scale)
    _check(input, residual, weight)
    if scale is not None and (scale.dtype != torch.float32 or scale.numel() != 1 or scale.device != input.device):
        raise _errors.invalid(f"all_reduce_rms_norm_quant: scale has {scale.dtype}, {scale.numel()} elements on {scale.device}: expected one float32 beside input")
    output, scales, residual_out = _quantized(input, scale, kind)
    _run(group, input, residual, weight, epsilon, output, residual_out, quantization=kind, scales=scales if scale is None else None, scale=scale)
    return output, scales, residual_out


@all_reduce_rms_norm_quant.register_fake
def _(input, residual, weight, epsilon, dtype, scale, group):
    _check(input, residual, weight)
    return _quantized(input, scale, _kind(dtype, scale))


def _size(group: str) -> tuple[int, int]:
    """Return this rank's number and the size of a group."""
    if _name(group) == "":
        return dist.get_rank(), dist.get_world_size()
    found = torch.distributed.distributed_c10d._resolve_process_group(group)
    return dist.get_rank(found), dist.get_world_size(found)


def _rows(name: str, rows: Rows, tokens: int, group: str, **tensors) -> dict[str, int]:
    """Return how many rows the buffers of this rank have, and refuse tensors with others."""
    found, like = rows.of(tokens, *_size(group)), tensors["input"]
    for what, tensor in tensors.items():
        if tensor is None:
            continue
        if tensor.dim() != 2 or tensor.shape[0] != found[what] or tensor.shape[1] != like.shape[-1]:
            raise _errors.invalid(f"{name}: {what} has shape {tuple(tensor.shape)}: expected {found[what]} rows of {like.shape[-1]} elements, as this rank's of {tokens}")
        if not tensor.is_contiguous() or tensor.dtype not in _CODES:
            raise _errors.invalid(f"{name}: {what} has {tensor.dtype}, strides {tuple(tensor.stride())}: expected float16, bfloat16 or float32, and rows without gaps")
        if tensor.dtype != like.dtype or tensor.device != like.device:
            raise _errors.invalid(f"{name}: {what} has {tensor.dtype} on {tensor.device}: expected {like.dtype} on {like.device}, as input")
    return found


def _like(tensor, rows: int, dtype=None):
    return torch.empty((rows, tensor.shape[-1]), dtype=dtype or tensor.dtype, device=tensor.device)


@torch.library.custom_op("mscclpp::reduce_scatter_rms_norm", mutates_args=())
def reduce_scatter_rms_norm(input: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, epsilon: float,
                            group: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rank's own rows of the norm of the sum and the residual, and of that sum. The residual has the rank's own rows."""
    output, residual_out = _scattered(input, residual, weight, group)
    _run(group, input, residual, weight, epsilon, output, residual_out, rows=Rows.OWN_ROWS)
    return output, residual_out


def _scattered(input, residual, weight, group):
    rows = _rows("reduce_scatter_rms_norm", Rows.OWN_ROWS, input.shape[0], group, input=input, residual=residual)
    _check(input, None, weight)
    return _like(input, rows["output"]), _like(input, rows["residual"])


@reduce_scatter_rms_norm.register_fake
def _(input, residual, weight, epsilon, group):
    return _scattered(input, residual, weight, group)


@torch.library.custom_op("mscclpp::reduce_scatter_rms_norm_all_gather", mutates_args=())
def reduce_scatter_rms_norm_all_gather(input: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, epsilon: float,
                                       group: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all rows of the norm of the sum and the residual, and the rank's own rows of that sum, as the residual has them."""
    output, residual_out = _kept(input, residual, weight, group)
    _run(group, input, residual, weight, epsilon, output, residual_out, rows=Rows.OWN_RESIDUAL)
    return output, residual_out


def _kept(input, residual, weight, group):
    rows = _rows("reduce_scatter_rms_norm_all_gather", Rows.OWN_RESIDUAL, input.shape[0], group, input=input, residual=residual)
    _check(input, None, weight)
    return torch.empty_like(input), _like(input, rows["residual"])


@reduce_scatter_rms_norm_all_gather.register_fake
def _(input, residual, weight, epsilon, group):
    return _kept(input, residual, weight, group)


@torch.library.custom_op("mscclpp::all_gather_quant", mutates_args=())
def all_gather_quant(input: torch.Tensor, tokens: int, dtype: torch.dtype, scale: torch.Tensor | None, group: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all of so many rows quantized, and their scales. The input has the rank's own rows."""
    output, scales = _gathered(input, tokens, dtype, scale, group)
    kind = _kind(dtype, scale)
    _run(group, input, None, None, 0.0, output, None, norm=Norm.NONE, quantization=kind, scales=scales if scale is None else None, scale=scale,
         rows=Rows.OWN_INPUT, tokens=tokens)
    return output, scales


def _gathered(input, tokens, dtype, scale, group):
    _rows("all_gather_quant", Rows.OWN_INPUT, tokens, group, input=input)
    kind = _kind(dtype, scale)
    if scale is not None and (scale.dtype != torch.float32 or scale.numel() != 1 or scale.device != input.device):
        raise _errors.invalid(f"all_gather_quant: scale has {scale.dtype}, {scale.numel()} elements on {scale.device}: expected one float32 beside input")
    scales = torch.empty((tokens, 1), dtype=torch.float32, device=input.device) if scale is None else scale.clone()
    return _like(input, tokens, _OUTPUTS[kind]), scales


@all_gather_quant.register_fake
def _(input, tokens, dtype, scale, group):
    return _gathered(input, tokens, dtype, scale, group)


# The parts of all_reduce_rms_norm, for what stands between them. The kernel behind either may begin early, and fetch its weights.
@torch.library.custom_op("mscclpp::all_reduce", mutates_args=())
def all_reduce(input: torch.Tensor, group: str) -> torch.Tensor:
    """Return the sum of the inputs of all ranks, in their order."""
    _check(input, None, None)
    output = torch.empty_like(input)
    _run(group, input, None, None, 0.0, output, None, norm=Norm.NONE)
    return output


@all_reduce.register_fake
def _(input, group):
    _check(input, None, None)
    return torch.empty_like(input)


@torch.library.custom_op("mscclpp::add_rms_norm", mutates_args=())
def add_rms_norm(input: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, epsilon: float, group: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the RMSNorm of input and residual, and their sum, without communication."""
    _check(input, residual, weight)
    output, residual_out = torch.empty_like(input), torch.empty_like(input)
    _run(group, input, residual, weight, epsilon, output, residual_out, rows=Rows.LOCAL)
    return output, residual_out


@add_rms_norm.register_fake
def _(input, residual, weight, epsilon, group):
    _check(input, residual, weight)
    return torch.empty_like(input), torch.empty_like(input)


def fused(backend: str | Callable = "inductor") -> Callable:
    """Return a backend for torch.compile that puts all_reduce_rms_norm in the place of an all-reduce, an addition and rms_norm.

    The group is one for which enable was called; others are left alone, and so are graphs that are made for training.
    """
    from . import _torch_fusion

    return _torch_fusion.backend(backend, lambda group, device: (_name(group), device.type) in _spaces)
