"""Every operation that torch 2.11 has for process groups, called by its own name over the backend, and over gloo where gloo has it. Two ranks."""

import datetime
import sys

import torch
import torch.distributed as dist

import mscclpp
import mscclpp.torch

limit = datetime.timedelta(minutes=5)
dist.init_process_group("gloo", timeout=limit)
rank = dist.get_rank()
gloo, ours = dist.group.WORLD, dist.new_group(backend="mscclpp", timeout=limit)
peer = 1 - rank
assert dist.get_world_size() == 2 and isinstance(ours, mscclpp.torch.ProcessGroup)

# Names of torch's class that are no operations of backends.
NO_OPERATIONS = {
    "BackendType", "CUSTOM", "GLOO", "MPI", "NCCL", "UCC", "UNDEFINED", "XCCL",  # kinds of backends
    "boxed", "unbox", "_id", "_backend_id", "_pybind11_conduit_v1_", "_register_backend", "_set_default_backend",  # torch's own bookkeeping
    "_has_hooks", "_register_on_completion_hook", "_enable_collectives_timing", "_wait_for_pending_works",  # of nccl alone
    "split_group", "merge_remote_group",  # of backends that say that they can, which this one does not: new_group makes groups
}
# Functions of torch.distributed that are no operations, and those that torch refuses for all but one backend.
NO_FUNCTIONS = {
    "Backend", "BackendConfig", "GroupMember", "P2POp", "group", "AllreduceCoalescedOptions", "AllreduceOptions", "AllToAllOptions", "BarrierOptions",
    "BroadcastOptions", "GatherOptions", "GroupName", "PrefixStore", "ProcessGroup", "ReduceOp", "ReduceOptions", "ReduceScatterOptions", "ScatterOptions",
    "Store", "DebugLevel", "get_debug_level", "Work", "default_pg_timeout", "reduce_op", "ProcessGroupNCCL", "ProcessGroupGloo", "destroy_process_group",
    "init_process_group", "is_gloo_available", "is_initialized", "is_mpi_available", "is_backend_available", "is_nccl_available", "get_pg_count",
    "is_torchelastic_launched", "is_ucc_available", "is_xccl_available", "get_node_local_rank", "get_default_backend_for_device", "supports_complex",
    "monitored_barrier", "split_group", "shrink_group",  # gloo alone, and backends that can split or shrink
}
called = set()


def full(value, *shape):
    return torch.arange(torch.Size(shape or (6,)).numel(), dtype=torch.float32).view(shape or (6,)) + 10 * rank + value


def check(what, got, want):
    if not (got is want is None or torch.equal(torch.as_tensor(got), torch.as_tensor(want))):
        sys.exit(f"rank {rank}: {what}: {got}: expected {want}")


def both(name, make, run, want=None):
    """Run an operation on equal tensors over both backends, and compare all of them; gloo lacks some."""
    called.add(name)
    results = []
    for group in (ours, gloo) if want is None else (ours,):
        tensors = make()
        work = run(getattr(group, name), *tensors)
        if work is not None:
            work.wait()
        results.append(tensors)
    for got, expected in zip(results[0], results[1] if want is None else want):
        check(name, got, expected)


def operations():
    c = torch._C._distributed_c10d
    both("allreduce", lambda: [full(1)], lambda f, t: f([t], c.AllreduceOptions()))
    both("allreduce_coalesced", lambda: [full(1), full(2, 3)], lambda f, *t: f(list(t), c.AllreduceCoalescedOptions()))
    root = c.BroadcastOptions()
    root.rootRank = 1
    both("broadcast", lambda: [full(1)], lambda f, t: f([t], root))
    to = c.ReduceOptions()
    to.rootRank = 1
    both("reduce", lambda: [full(1)], lambda f, t: (f([t], to).wait(), t.mul_(rank == 1), None)[2])
    both("allgather", lambda: [full(1), full(0), full(0)], lambda f, t, *o: f([list(o)], [t], c.AllgatherOptions()))
    both("allgather_coalesced", lambda: [full(1, 2), full(2, 3), *(full(0, n) for n in (2, 3, 2, 3))],
         lambda f, a, b, *o: f([list(o[:2]), list(o[2:])], [a, b], c.AllgatherOptions()))
    both("_allgather_base", lambda: [full(1), full(0, 12)], lambda f, t, o: f(o, t, c.AllgatherOptions()))
    both("allgather_into_tensor_coalesced", lambda: [full(1), full(2), full(0, 12), full(0, 12)],
         lambda f, a, b, o, p: f([o, p], [a, b], c.AllgatherOptions()))
    both("reduce_scatter", lambda: [full(0), full(1), full(2)], lambda f, o, *t: f([o], [list(t)], c.ReduceScatterOptions()))
    both("_reduce_scatter_base", lambda: [full(0), full(1, 12)], lambda f, o, t: f(o, t, c.ReduceScatterOptions()))
    both("reduce_scatter_tensor_coalesced", lambda: [full(0), full(0), full(1, 12), full(2, 12)],
         lambda f, o, p, a, b: f([o, p], [a, b], c.ReduceScatterOptions()))
    of = c.GatherOptions()
    of.rootRank = 0
    both("gather", lambda: [full(1), full(0), full(0)], lambda f, t, *o: f([list(o)] if rank == 0 else [], [t], of))
    from_ = c.ScatterOptions()
    from_.rootRank = 1
    both("scatter", lambda: [full(0), full(1), full(2)], lambda f, o, *t: f([o], [list(t)] if rank == 1 else [], from_))
    both("alltoall_base", lambda: [full(0), full(1)], lambda f, o, t: f(o, t, [], [], c.AllToAllOptions()))
    sent = [full(1, 3), full(2, 3)]
    theirs = sent[rank] - 10 * rank + 10 * peer
    both("alltoall", lambda: [full(0, 3), full(0, 3), *sent], lambda f, *t: f(list(t[:2]), list(t[2:]), c.AllToAllOptions()),
         [sent[0], theirs] if rank == 0 else [theirs, sent[1]])
    both("send", lambda: [full(1), full(0)], lambda f, t, o: exchange(f.__self__, t, o))
    called.add("recv")
    both("barrier", list, lambda f: f(c.BarrierOptions()))
    both("monitored_barrier", list, lambda f: f(limit))
    try:
        ours.recv_anysource([full(0)], 0)
    except mscclpp.UnsupportedError:
        called.add("recv_anysource")
    begin = ours._start_coalescing, ours._end_coalescing
    begin[0](torch.device("cpu"))
    tensors = [full(1), full(2)]
    for t in tensors:
        ours.allreduce([t], c.AllreduceOptions())
    begin[1](torch.device("cpu")).wait()
    check("coalesced", tensors[1], 2 * full(2) + 10 * peer - 10 * rank)
    called.update(("_start_coalescing", "_end_coalescing"))


def exchange(group, mine, other):
    works = [group.send([mine], peer, 3), group.recv([other], peer, 3)]
    for work in works:
        work.wait()


def answers():
    """A group answers torch's questions."""
    assert ours.rank() == rank and ours.size() == 2 and ours.name() == ours._get_backend_name() == "mscclpp"
    assert ours.group_name and ours.group_desc == "undefined" and ours.get_group_store() and ours.bound_device_id is None
    assert torch.device("cpu") in ours._device_types and ours._get_backend(torch.device("cpu")) is ours
    ours._set_group_name(ours.group_name), ours._set_group_desc(ours.group_desc)
    ours._set_sequence_number_for_group()
    assert ours._get_sequence_number_for_group() >= 0
    ours.set_timeout(limit)
    called.update(("rank", "size", "name", "_get_backend_name", "group_name", "group_desc", "get_group_store", "bound_device_id", "_device_types", "_get_backend",
                   "_set_group_name", "_set_group_desc", "_set_sequence_number_for_group", "_get_sequence_number_for_group", "set_timeout"))
    for name in ("abort", "shutdown"):
        group = dist.new_group(backend="mscclpp", timeout=limit)
        getattr(group, name)()
        called.add(name)
        try:
            group.allreduce([full(1)], torch._C._distributed_c10d.AllreduceOptions())
        except mscclpp.ClosedError:
            continue
        sys.exit(f"rank {rank}: a group was used after {name}")


def functions():
    """Functions of torch.distributed, over both backends, in the forms that the operations above do not cover."""
    def each(name, call):
        functions_called.add(name)
        check(name, call(ours, getattr(dist, name)), call(gloo, getattr(dist, name)))
    functions_called = set()

    def into(*shape):
        return full(0, *shape)
    each("all_reduce", lambda g, f: (t := full(1), f(t, group=g))[0])
    each("all_reduce_coalesced", lambda g, f: (t := full(1), f([t], group=g))[0])
    each("broadcast", lambda g, f: (t := full(1), f(t, 1, group=g))[0])
    each("reduce", lambda g, f: (t := full(1), f(t, 1, group=g), t * (rank == 1))[2])
    each("all_gather", lambda g, f: (o := [into(), into()], f(o, full(1), group=g), torch.stack(o))[2])
    each("all_gather_coalesced", lambda g, f: (o := [[into()], [into()]], f(o, [full(1)], group=g), torch.stack([o[0][0], o[1][0]]))[2])
    each("all_gather_into_tensor", lambda g, f: (o := into(12), f(o, full(1), group=g))[0])
    each("reduce_scatter", lambda g, f: (o := into(), f(o, [full(1), full(2)], group=g))[0])
    each("reduce_scatter_tensor", lambda g, f: (o := into(), f(o, full(1, 12), group=g))[0])
    each("all_to_all_single", lambda g, f: (o := into(), f(o, full(1), group=g))[0])
    outs = [into(), into()]
    dist.all_to_all(outs, [full(1), full(2)], group=ours)  # gloo has none
    check("all_to_all", outs[peer], full(1 + rank) + 10 * (peer - rank))
    each("gather", lambda g, f: (o := [into(), into()], f(full(1), o if rank == 0 else None, 0, group=g), torch.stack(o))[2])
    each("scatter", lambda g, f: (o := into(), f(o, [full(1), full(2)] if rank == 1 else None, 1, group=g))[0])
    each("isend", lambda g, f: (o := into(), w := f(full(1), peer, g), dist.irecv(o, peer, g).wait(), w.wait())[0])
    each("send", lambda g, f: (o := into(), (f(full(1), 1, g), dist.recv(o, 1, g)) if rank == 0 else (dist.recv(o, 0, g), f(full(1), 0, g)))[0])
    each("batch_isend_irecv", lambda g, f: (o := into(), [w.wait() for w in f([dist.P2POp(dist.isend, full(1), peer, g), dist.P2POp(dist.irecv, o, peer, g)])])[0])
    each("barrier", lambda g, f: f(group=g))
    each("all_gather_object", lambda g, f: (o := [None, None], f(o, rank, group=g), torch.tensor(o))[2])
    each("gather_object", lambda g, f: (o := [None, None], f(rank, o if rank == 0 else None, 0, group=g), torch.tensor([x or 0 for x in o]))[2])
    each("broadcast_object_list", lambda g, f: (o := [rank], f(o, 1, group=g), torch.tensor(o))[2])
    each("scatter_object_list", lambda g, f: (o := [None], f(o, [3, 4] if rank == 0 else None, 0, group=g), torch.tensor(o))[2])
    each("send_object_list", lambda g, f: (o := [5], f(o, 1, group=g) if rank == 0 else dist.recv_object_list(o, 0, group=g), torch.tensor(o))[2])
    for name, arguments in (("get_rank", ()), ("get_world_size", ()), ("get_process_group_ranks", ()), ("get_group_rank", (1,)), ("get_global_rank", (1,))):
        each(name, lambda g, f, a=arguments: torch.tensor(f(g, *a)))
    assert dist.get_backend(ours) == "mscclpp" and "mscclpp" in dist.get_backend_config(ours)
    assert dist.new_subgroups(1, backend="mscclpp", timeout=limit)[0].size() == 1
    assert dist.new_subgroups_by_enumeration([[1], [0]], backend="mscclpp", timeout=limit)[0].size() == 1
    functions_called.update(("all_to_all", "recv", "irecv", "recv_object_list", "get_backend", "get_backend_config", "new_group", "new_subgroups",
                             "new_subgroups_by_enumeration"))
    missing = set(dist.distributed_c10d.__all__) - functions_called - NO_FUNCTIONS
    assert not missing, f"functions of torch.distributed that were not called: {sorted(missing)}"


def factors():
    """PREMUL_SUM, which gloo lacks: each rank has a factor of its own, as a number or in a tensor."""
    for tensor in (False, True):
        op = dist._make_nccl_premul_sum(torch.tensor([rank + 2.0]) if tensor else rank + 2.0)
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            one = torch.ones(6, dtype=dtype)
            dist.all_reduce(x := one.clone(), op, ours)
            check("factor", x, 5 * one)
            dist.all_reduce(x := torch.ones(3, 2, dtype=dtype).t(), op, ours)
            check("factor, not contiguous", x, 5 * x.new_ones(2, 3))
            dist.reduce(x := one.clone(), 1, op, ours)
            check("reduce with a factor", x, (5 if rank == 1 else 1) * one)
            dist.reduce_scatter_tensor(x := one[:3].clone(), one, op, ours)
            check("reduce_scatter_tensor with a factor", x, 5 * one[:3])
            dist.reduce_scatter(x := one.clone(), [one, one], op, ours)
            check("reduce_scatter with a factor", x, 5 * one)
    try:
        dist.all_reduce(torch.ones(1, dtype=torch.int32), dist._make_nccl_premul_sum(2.0), ours)
    except mscclpp.UnsupportedError as problem:
        assert "expected floating-point numbers" in str(problem), problem
    else:
        sys.exit("a factor for integers was taken")


for part in (operations, answers, functions, factors):
    part()
missing = {n for n in dir(dist.ProcessGroup) if not n.startswith("__")} - called - NO_OPERATIONS
assert not missing, f"operations of torch that were not called: {sorted(missing)}"
dist.destroy_process_group()
print(f"rank {rank} is done")
