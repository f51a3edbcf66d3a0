"""Execution plans: one that the language makes is checked, and run by two ranks."""

import array
import sys

import mscclpp
from mscclpp.language.channel import MemoryChannel
from mscclpp.language.collectives import AllGather
from mscclpp.language.internal.types import SyncType
from mscclpp.language.program import CollectiveProgram
from mscclpp.language.rank import Rank


def refused(kind, text, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as problem:
        assert text in str(problem), problem
        return
    sys.exit(f"{text}: nothing was raised")


def gather(spec, blocks=1):
    """Put what a rank has into the memory of the other one."""
    with CollectiveProgram.from_spec(spec) as program:
        for source in range(2):
            own = Rank(source).get_output_buffer()[source:source + 1]
            channel = MemoryChannel(1 - source, source)
            channel.signal(tb=0, relaxed=True)
            channel.wait(tb=0, data_sync=SyncType.after, relaxed=True)
            channel.put(Rank(1 - source).get_output_buffer()[source:source + 1], own, tb=0)
            channel.signal(tb=0, data_sync=SyncType.before)
            channel.wait(tb=0, data_sync=SyncType.after)
    return program


spec = mscclpp.AlgoSpec("gather", AllGather(2, 1, True), 2, 2, True, 1, "Simple", tags={"small": 1})
text = gather(spec).to_json()

plan = mscclpp.ExecutionPlan.from_json(text)
assert (plan.name, plan.collective, plan.ranks, plan.in_place) == ("gather", "allgather", 2, True), plan
assert plan.min_message_size == 0 < plan.max_message_size and plan.buffer_alignment == 16 and len(plan.chunks) == 2
assert "gather" in repr(plan)
assert plan.check()["verdict"].startswith("right"), plan.check()
refused(mscclpp.InvalidUsage, "", mscclpp.ExecutionPlan.from_json, "{}")
refused(mscclpp.Error, "no-such-file", mscclpp.ExecutionPlan, "no-such-file.json", 0)

with mscclpp.Communicator() as comm:
    rank, executor = comm.rank, mscclpp.Executor(comm)
    for n in (4, 4096):
        whole = array.array("f", [0.0] * (2 * n))
        for i in range(n):
            whole[rank * n + i] = rank + 1.0
        view = memoryview(whole).cast("B")[rank * 4 * n:(rank + 1) * 4 * n].cast("f")
        executor.run(plan, view, whole)
        assert whole == array.array("f", [1.0] * n + [2.0] * n), whole[:8]
    address, count = whole.buffer_info()
    whole[(1 - rank) * n:(2 - rank) * n] = array.array("f", [0.0] * n)
    executor.execute(rank, address + rank * 4 * n, address, 4 * n, 8 * n, mscclpp.DataType.float32, plan, 0, mscclpp.PacketType.LL8)
    assert whole == array.array("f", [1.0] * n + [2.0] * n), whole[:8]
    refused(mscclpp.InvalidUsage, "rank 5", executor.execute, 5, 0, 0, 0, 0, 0, plan)
    refused(mscclpp.InvalidUsage, "one type", executor.run, plan, array.array("i", [0] * 4), array.array("f", [0] * 8))
    refused(mscclpp.InvalidUsage, "read-only", executor.run, plan, bytes(16), bytes(32))
    refused(mscclpp.InvalidUsage, "stream 3", executor.run, plan, view, whole, stream=3)
    executor.reset()
    executor.run(plan, view, whole)

    # Algorithms: compiled ones, and the library's, which a selector chooses.
    made = mscclpp.compile(algo=gather, algo_spec=spec, rank=rank)
    assert made.id == mscclpp.compile(gather, spec, 0, blocks=2).id != made.name == "gather", made.id
    assert (made.collective, made.tags, made.buffer_mode, made.constraint.world_size) == ("allgather", {"small": 1}, "in_place", 2), made.tags
    assert made.is_dsl_algorithm() and not made.is_native_algorithm() and made.serves(comm, 16)
    refused(ValueError, "a function", mscclpp.compile, 5, spec)
    refused(TypeError, "in the plan", made.set_message_size_range, 0, 1)

    def clear():
        whole[(1 - rank) * n:(2 - rank) * n] = array.array("f", [0.0] * n)

    def right():
        assert whole == array.array("f", [1.0] * n + [2.0] * n), whole[:8]
    clear()
    place = address + rank * 4 * n, address, 4 * n, 8 * n, mscclpp.DataType.float32
    assert made.execute(comm, *place, executor=executor) == 0
    right()
    refused(mscclpp.InvalidUsage, "without an executor", made.execute, comm, *place)
    refused(mscclpp.UnsupportedError, "nblocks 3", made.execute, comm, *place, nblocks=3)
    native = mscclpp.Algorithm(collective="allgather", native="chunk")
    native.set_message_size_range(0, 1 << 20)
    assert native.message_size_range == (0, 1 << 20) and native.is_native_algorithm()
    clear()
    assert native.execute(comm, *place) == 0
    right()
    sums = array.array("i", [rank + 1] * 10)
    mscclpp.Algorithm(collective="allreduce", native="allpair_ll8").run(comm, sums, op=mscclpp.ReduceOp.MAX)
    assert set(sums) == {2}, sums
    refused(mscclpp.Error, "no_such", mscclpp.Algorithm(collective="allreduce", native="no_such").run, comm, sums)
    refused(mscclpp.InvalidUsage, "either a plan", mscclpp.Algorithm)
    refused(mscclpp.InvalidUsage, "expected one of allreduce", mscclpp.Algorithm, collective="sum", native="x")

    from mscclpp.ext import AlgorithmCollectionBuilder
    builder, asked = AlgorithmCollectionBuilder(), []
    builder.add_algorithm_builder(made)
    refused(ValueError, "expected an Algorithm", builder.add_algorithm_builder, 5)
    builder.set_algorithm_selector(lambda known, request: asked.append(request))
    builder.set_fallback_algorithm_selector(lambda known, request: known.get(request.collective, {}).get("gather") if request.hints else None)
    collection = builder.build()
    for hints in ({}, {"plan": 1}):
        clear()
        collection.run(comm, "allgather", view, whole, executor=executor, hints=hints)
        right()
    assert [r.collective for r in asked] == ["allgather"] * 2 and asked[0].message_size == 4 * n and asked[0].world_size == 2
    assert len(collection) == 1 and collection[0] is made and list(collection) == collection.get_by_collective("allgather") == [made]
    builder.reset()
    every = builder.build_default_algorithms(comm)
    assert "ring" in {a.name for a in every.get_by_collective("allreduce")} and len(every) > 10
    every.run(comm, "allreduce", sums)
    assert set(sums) == {4}, sums

    # A ring of triggers that the program takes itself.
    with mscclpp.Fifo(comm, 16) as fifo:
        assert fifo.poll() is None and fifo.size() == 16 and fifo.device_handle().raw
        refused(mscclpp.InvalidUsage, "empty ring", fifo.pop)
        positions = [fifo.push(i, i + 1) for i in range(5)]
        for i, position in enumerate(positions):
            trigger = fifo.poll(60)
            assert (trigger.fst, trigger.snd) == (i, i + 1) and fifo.poll() is trigger, trigger
            fifo.pop()
            fifo._proxy.flush(position, 60)
        assert fifo.poll() is None
refused(mscclpp.ClosedError, "closed", executor.run, plan, view, whole)
print(f"rank {rank} is done")
