"""Execution plans: one that the language makes is checked, and run by two ranks."""

import array
import json
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

    # The communicator's own methods use plans that were registered, as a selector chooses.
    copies = json.loads(text)
    copies["name"], copies["collective"], copies["inplace"] = "own", "allreduce", False
    for gpu in copies["gpus"]:
        place = {"index": 0, "size": 1}
        ops = [{"name": "copy", "src_buff": [{"type": "i", **place}], "dst_buff": [{"type": "o", **place}]}]
        gpu.update(input_chunks=1, output_chunks=1, scratch_chunks=0, channels=[], remote_buffers=[], semaphores=[],
                   threadblocks=[{"id": 0, "ops": ops, "channels": [], "remote_buffer_refs": []}])
    own = mscclpp.ExecutionPlan.from_json(json.dumps(copies))  # wrong on purpose: results show who has performed a call
    refused(mscclpp.InvalidUsage, "own is not right, but wrong", comm.register_plan, own)
    comm.register_plan(own, unverified=True, packet_type=mscclpp.PacketType.LL8)
    refused(mscclpp.InvalidUsage, "registered already", comm.register_plan, own, unverified=True)
    assert "own" in comm.query("algorithms.allreduce").split()
    asked, answer = [], None

    def choose(request):
        asked.append(request)
        return answer(request) if callable(answer) else answer

    def reduced(value=lambda: rank + 1, **named):
        numbers = array.array("i", [value()] * 64)
        result = array.array("i", [0] * 64)
        comm.all_reduce(numbers, result, **named)
        return set(result)
    assert reduced() == {3}  # the library's tables do not choose a registered plan
    comm.register_selector(choose)
    for answer, want in ((None, 3), ("own", rank + 1), ("own", rank + 1), ("ring", 3), (mscclpp.Algorithm(execution_plan=own), rank + 1), (None, 3)):
        assert reduced() == {want}, answer
    last = asked[-1]
    assert len(asked) == 6 and (last.collective, last.message_size, last.world_size, last.rank) == ("allreduce", 256, 2, rank)
    assert (last.dtype, last.op, last.buffer_mode()) == (mscclpp.DataType.int32, mscclpp.ReduceOp.SUM, "out_of_place")
    assert reduced(algorithm="own") == {rank + 1} and len(asked) == 6
    comm.all_reduce(array.array("i", [0] * 64))
    comm.reduce_scatter(array.array("i", [0] * 64), array.array("i", [0] * 32), op=mscclpp.ReduceOp.MAX)
    assert asked[-2].buffer_mode() == "in_place" and asked[-1].message_size == 256 and asked[-1].op == mscclpp.ReduceOp.MAX
    answer = "no such"
    refused(mscclpp.InvalidUsage, '"no such"', reduced)

    def answer(request):
        raise LookupError("in a selector")
    try:
        reduced()
    except mscclpp.InvalidUsage as problem:
        assert isinstance(problem.__cause__, LookupError) and "raised LookupError" in str(problem), problem
    else:
        sys.exit("nothing was raised")

    def answer(request):
        raise KeyboardInterrupt
    refused(KeyboardInterrupt, "", reduced)
    refused(mscclpp.InvalidUsage, "a function of a request", comm.register_selector, 5)
    with comm.split(0) as other:
        numbers = array.array("i", [rank + 1])
        other.all_reduce(numbers)  # has neither
        assert set(numbers) == {3}
    comm.register_selector(None)
    assert reduced() == {3}

    # A collection chooses for the methods; without a selector the first plan that serves a call.
    with comm.split(0) as other:
        keeps = AlgorithmCollectionBuilder()
        keeps.add_algorithm_builder(mscclpp.Algorithm(execution_plan=own))
        refused(mscclpp.InvalidUsage, "own is not right", keeps.build().attach, other)
        keeps.build().attach(other, unverified=True)
        for count, op, want in ((64, mscclpp.ReduceOp.MAX, rank + 1), (3, mscclpp.ReduceOp.SUM, 3), (64, mscclpp.ReduceOp.AVG, 1)):
            numbers = array.array("i", [rank + 1] * count)
            other.all_reduce(numbers, op=op)
            assert set(numbers) == {want}, (count, op, numbers)
    first = AlgorithmCollectionBuilder()
    first.add_algorithm_builder(made)
    first.build().attach(comm)
    clear()
    comm.all_gather(view, whole)  # by the plan, as the first that serves the call
    right()
    odd = array.array("i", [rank] * 3)
    three = array.array("i", [0] * 6)
    comm.all_gather(odd, three)  # 12 bytes are not for it
    assert three == array.array("i", [0] * 3 + [1] * 3)
    comm.register_selector(None)

    # A ring of triggers that the program takes itself.
    with mscclpp.Fifo(comm, 16) as fifo:
        assert fifo.poll() is None and fifo.size() == 16 and fifo.device_handle().raw
        refused(mscclpp.InvalidUsage, "empty ring", fifo.pop)
        positions = [fifo.push(i, i + 1) for i in range(5)]
        for i, position in enumerate(positions):
            trigger = fifo.poll(300)
            assert (trigger.fst, trigger.snd) == (i, i + 1) and fifo.poll() is trigger, trigger
            fifo.pop()
            fifo._proxy.flush(position, 300)
        assert fifo.poll() is None
refused(mscclpp.ClosedError, "closed", executor.run, plan, view, whole)
print(f"rank {rank} is done")
