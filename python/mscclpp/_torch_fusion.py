"""The pattern pass for torch.compile: an all-reduce, the addition of a residual and rms_norm become one operator."""

from __future__ import annotations

import operator

import torch

_ADDS = (operator.add, torch.add, "add")
_NORMS = (torch.nn.functional.rms_norm, torch.rms_norm)


def _is(node, targets) -> bool:
    return isinstance(node, torch.fx.Node) and node.op in ("call_function", "call_method") and node.target in targets


def _sum_of_ranks(node):
    """Return the all-reduce behind a node, if it is one of functional collectives that adds up."""
    functional = torch.ops._c10d_functional
    waits, reduces = (functional.wait_tensor, functional.wait_tensor.default), (functional.all_reduce, functional.all_reduce.default)
    if not _is(node, waits):
        return None
    reduce = node.args[0]
    if not _is(reduce, reduces) or reduce.kwargs or len(reduce.args) != 3 or str(reduce.args[1]).lower() != "sum" or len(reduce.users) != 1:
        return None
    return reduce


_IN_PLACE = (operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow, operator.iand, operator.ior, operator.ixor,
             operator.ilshift, operator.irshift, operator.imatmul, operator.setitem, operator.delitem)


def _writes(node) -> bool:
    """Whether a node may write to a tensor that others have: by its name, its schema or an argument, or because it does not say."""
    if node.op in ("placeholder", "get_attr", "output"):
        return False
    if node.op == "call_module" or node.kwargs.get("out") is not None or node.kwargs.get("inplace") or any(a is True for a in node.args):
        return True  # True may be inplace
    if node.op == "call_method":
        return node.target.endswith("_") and not node.target.endswith("__") or node.target == "__setitem__"
    if node.target in _IN_PLACE or isinstance(node.target, torch._ops.HigherOrderOperator):
        return True
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable
    if isinstance(node.target, torch._ops.OpOverloadPacket):
        return any(getattr(node.target, name)._schema.is_mutable for name in node.target.overloads())
    name = getattr(node.target, "__name__", "_")
    return name.endswith("_") and not name.endswith("__")


def _undisturbed(graph, first, last) -> bool:
    """Whether no node from the first to the last writes to a tensor: the fused operator reads all of them at one place."""
    inside = False
    for node in graph.nodes:
        inside = inside or node is first
        if inside and _writes(node):
            return False
        if node is last:
            return inside
    return False


def _value(node):
    meta = node.meta.get("example_value", node.meta.get("val")) if isinstance(node, torch.fx.Node) else None
    return meta if isinstance(meta, torch.Tensor) else None


def _norm_arguments(node):
    """Return the shape, the weight and epsilon of a norm, however they are passed."""
    names = ("input", "normalized_shape", "weight", "eps")
    found = dict(zip(names, node.args)) | dict(node.kwargs)
    return found.get("input"), found.get("normalized_shape"), found.get("weight"), found.get("eps")


def _served(x, residual, weight, shape) -> bool:
    """Whether the operator takes these tensors."""
    values = [_value(n) for n in (x, residual, weight)]
    if any(v is None for v in values) or len(shape) != 1 or values[2].dim() != 1:
        return False
    first, second, third = values
    return (first.dtype in (torch.float16, torch.bfloat16, torch.float32) and first.dtype == second.dtype == third.dtype and first.shape == second.shape
            and first.device == second.device == third.device and first.shape[-1] == shape[0] == third.shape[0] and shape[0] % 8 == 0
            and all(v.is_contiguous() for v in values))


def _operands(added):
    """Yield the sum over ranks, and what is added to it."""
    if len(added.args) != 2 or added.kwargs:
        return
    for a, b in (added.args, added.args[::-1]):
        waited = a
        reduce = _sum_of_ranks(waited)
        if reduce is not None and len(waited.users) == 1 and isinstance(b, torch.fx.Node):
            yield reduce, waited, b


def fuse(graph: torch.fx.GraphModule, enabled) -> int:
    """Replace what there is of the pattern, and return how often. enabled says whether a group on a kind of device has the operator."""
    count = 0
    for norm in list(graph.graph.nodes):
        if not _is(norm, _NORMS):
            continue
        added, shape, weight, epsilon = _norm_arguments(norm)
        if not _is(added, _ADDS) or weight is None or not isinstance(shape, (tuple, list, torch.Size)):
            continue
        for reduce, waited, residual in _operands(added):
            x, group = reduce.args[0], reduce.args[2]
            if not _served(x, residual, weight, shape) or not isinstance(group, str) or not enabled(group, _value(x).device):
                continue
            if not _undisturbed(graph.graph, reduce, norm):
                continue
            # torch's default: the distance between numbers of the type.
            epsilon = torch.finfo(_value(x).dtype).eps if epsilon is None else epsilon
            with graph.graph.inserting_before(added):
                both = graph.graph.call_function(torch.ops.mscclpp.all_reduce_rms_norm.default, (x, residual, weight, epsilon, group))
                out, total = (graph.graph.call_function(operator.getitem, (both, i)) for i in (0, 1))
            # The weight may be computed between the addition and the norm: then the pattern stays.
            if _behind(graph.graph, weight, both):
                for node in (total, out, both):
                    graph.graph.erase_node(node)
                continue
            # The next layer begins with these: it is served if their values are known.
            out.meta, total.meta = dict(norm.meta), dict(added.meta)
            norm.replace_all_uses_with(out)
            added.replace_all_uses_with(total)
            for node in (norm, added, waited, reduce):
                graph.graph.erase_node(node)
            count += 1
            break
    if count:
        graph.graph.lint()
        graph.recompile()
    return count


def _behind(graph, node, other) -> bool:
    """Whether a node comes behind another one."""
    for n in graph.nodes:
        if n is node:
            return False
        if n is other:
            return True
    return False


def backend(inner, enabled):
    """Return a backend that fuses, and hands the graph on."""
    from torch._dynamo.backends.registry import lookup_backend

    inner = lookup_backend(inner) if isinstance(inner, str) else inner

    def compile(graph, example_inputs, **options):
        compile.replaced += 0 if torch.is_grad_enabled() else fuse(graph, enabled)
        return inner(graph, example_inputs, **options)

    compile.replaced = 0
    return compile
