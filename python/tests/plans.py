"""Execution plans: one that the language makes is checked, and run by two ranks."""

import array
import sys

import mscclpp
from mscclpp.language.channel import MemoryChannel
from mscclpp.language.collectives import AllGather
from mscclpp.language.general import JSON
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


with CollectiveProgram("gather", AllGather(2, 1, True), 2):
    for source in range(2):
        own = Rank(source).get_output_buffer()[source:source + 1]
        channel = MemoryChannel(1 - source, source)
        channel.signal(tb=0, relaxed=True)
        channel.wait(tb=0, data_sync=SyncType.after, relaxed=True)
        channel.put(Rank(1 - source).get_output_buffer()[source:source + 1], own, tb=0)
        channel.signal(tb=0, data_sync=SyncType.before)
        channel.wait(tb=0, data_sync=SyncType.after)
    text = JSON()

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
refused(mscclpp.ClosedError, "closed", executor.run, plan, view, whole)
print(f"rank {rank} is done")
