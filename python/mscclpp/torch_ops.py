"""Operators for torch: importing this module registers torch.ops.mscclpp.

    import mscclpp.torch_ops

    mscclpp.torch_ops.enable()  # once, on all ranks of the group
    out, residual = torch.ops.mscclpp.all_reduce_rms_norm(x, residual, weight, 1e-6, "")

They take tensors on GPUs and on CPU, are traced by torch.compile, and recorded into CUDA graphs. A group may have any backend. Names of
groups are those of torch ("" is the default group), as functional collectives have them.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from . import _errors, _torch_group, _types
from .inference import Quantization, Workspace

__all__ = ["disable", "enable"]

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


def enable(group=None, *, device: str | torch.device | None = None, scratch_bytes: int = 0) -> None:
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


def disable(group=None) -> None:
    """End what enable has made for a group: before it is destroyed."""
    for key in [k for k in _spaces if k[0] == _name(group)]:
        _spaces.pop(key)._comm.close()


def _space(group: str, like: torch.Tensor) -> Workspace:
    found = _spaces.get((_name(group), like.device.type))
    if found is None:
        raise _errors.invalid(f"torch.ops.mscclpp: group {group!r} on {like.device.type}: expected that mscclpp.torch_ops.enable was called for it")
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


def _run(group, input, residual, weight, epsilon, output, residual_out, norm=0, bias=None, quantization=0, scales=None, scale=None) -> None:
    hidden = weight.numel()
    at = {"input": input.data_ptr(), "weight": weight.data_ptr(), "output": output.data_ptr(), "residual_out": residual_out.data_ptr()}
    for name, tensor in (("residual", residual), ("bias", bias), ("scales", scales), ("scale", scale)):
        if tensor is not None:
            at[name] = tensor.data_ptr()
    stream = torch.cuda.current_stream(input.device).cuda_stream if input.is_cuda else 0
    tokens = input.numel() // hidden if hidden else 0
    _space(group, input)._norm(at, tokens, hidden, _CODES[input.dtype], epsilon, norm, quantization, 0, stream)


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
