"""The plan language: programs give the plans of MSCCL++, and raise what it raises."""

import hashlib
import json
import os

from mscclpp.default_algos import allgather_multi_nodes, allreduce_multi_nodes, reducescatter_multi_nodes
from mscclpp.language import AlgoSpec, ReplicationPolicy
from mscclpp.language.channel import *
from mscclpp.language.collectives import *
from mscclpp.language.general import *
from mscclpp.language.loop import *
from mscclpp.language.program import *
from mscclpp.language.rank import *
from mscclpp.language.thread_block_group import *

SUMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../plan/dsl/testdata/plans.sum")


def sums():
    with open(SUMS, encoding="utf-8") as lines:
        return {name: text for text, name in (line.split() for line in lines)}


def packets(ranks, **more):
    return dict(num_ranks=ranks, protocol="LL", use_double_scratch_buffer=True, **more)


# Programs, by the names of their plans. -------------------------------------------------------------------------------------


def copy_test():
    with CollectiveProgram("copy_test", TestCollective(1, 1, 1), 1):
        rank = Rank(0)
        rank.copy(rank.get_output_buffer()[0:1], rank.get_input_buffer()[:], tb=0)
        return JSON()


def barrier_test():
    with CollectiveProgram("barrier_test", TestCollective(1, 0, 0), 1):
        Rank(0).barrier(tb_list=[0, 1])
        return JSON()


def flush_test():
    with CollectiveProgram("flush_test", TestCollective(2, 0, 0), 2) as prog:
        PortChannel(1, 0).flush(tb=0, data_sync=SyncType.before)
    return prog.to_json()  # after the end of the program


def get_test():
    with CollectiveProgram("get_test", TestCollective(2, 2, 0), 2):
        for rank in range(2):
            channel = MemoryChannel(1 - rank, rank)
            channel.signal(tb=0, relaxed=True)
            channel.wait(tb=0, data_sync=SyncType.after, relaxed=True)
            channel.get(Rank(rank).get_input_buffer()[0:1], Rank(1 - rank).get_input_buffer()[1:2], tb=0)
            channel.signal(tb=0, data_sync=SyncType.before)
            channel.wait(tb=0, data_sync=SyncType.after)
        return JSON()


def put_with_signal_test():
    with CollectiveProgram("put_with_signal_test", TestCollective(2, 2, 0), 2):
        for rank in range(2):
            channel = PortChannel(1 - rank, rank)
            channel.signal(tb=0)
            channel.wait(tb=0, data_sync=SyncType.after)
            channel.put_with_signal(Rank(1 - rank).get_input_buffer()[1:2], Rank(rank).get_input_buffer()[0:1], tb=0)
            channel.wait(tb=0, data_sync=SyncType.after)
        return JSON()


def send_recv(group, **more):
    def program(name, ranks):
        with CollectiveProgram(name, SendRecv(ranks, 1, False), ranks, **more):
            for rank in range(ranks):
                following, previous = (rank + group) % ranks, (rank - group) % ranks
                swapped = following == previous and rank > following  # both lead to one peer: the order decides which is whose
                made = [PortChannel(peer, rank) for peer in ((previous, following) if swapped else (following, previous))]
                to, back = made[::-1] if swapped else made
                back.signal(tb=0, data_sync=SyncType.none)
                to.wait(tb=0, data_sync=SyncType.after)
                to.put_with_signal(Rank(following).get_output_buffer()[:], Rank(rank).get_input_buffer()[:], tb=0)
                back.wait(tb=0, data_sync=SyncType.none)
            return JSON()
    return program


def reduce_test():
    with CollectiveProgram("reduce_test", TestCollective(1, 3, 2), 1):
        rank, group = Rank(0), ThreadBlockGroup(tb_list=[0, 1, 2, 3])
        data = rank.get_input_buffer()
        for other in (data[1:2], data[2:3]):
            rank.reduce(data[0:1], [other], tb_group=group, dst_chunk=rank.get_output_buffer()[0:1])
        return JSON()


def read_reduce_test():
    with CollectiveProgram("read_reduce_test", TestCollective(2, 2, 2), 2):
        for rank in range(2):
            channel, data, peers = MemoryChannel(1 - rank, rank), Rank(rank).get_input_buffer(), Rank(1 - rank).get_input_buffer()
            channel.signal(tb=0, relaxed=True)
            channel.wait(tb=0, data_sync=SyncType.after, relaxed=True)
            for i in range(2):
                channel.reduce(data[0:1], [peers[i : i + 1]], tb=0, local_dst_chunk=Rank(rank).get_output_buffer()[0:1])
            channel.signal(tb=0, data_sync=SyncType.before)
            channel.wait(tb=0, data_sync=SyncType.after)
        return JSON()


def semaphore_test():
    with CollectiveProgram("semaphore_test", TestCollective(1, 0, 0), 1):
        semaphore = Semaphore(rank=0, initial_value=0)
        assert (semaphore.id, semaphore.rank, semaphore.initial_value) == (0, 0, 0)
        semaphore.acquire(tb=0, data_sync=SyncType.after)
        semaphore.release(tb=1, data_sync=SyncType.before)
        return JSON()


def unpack_packets_test():
    with CollectiveProgram("unpack_packets_test", TestCollective(1, 1, 1), 1, protocol="LL") as prog:
        rank, scratch = Rank(0), Buffer(0, 1)
        assert prog.gpus[0].scratch_chunks == 1
        rank.copy_packets(scratch[0:1], rank.get_input_buffer()[0:1], tb=0)
        rank.unpack_packets(rank.get_output_buffer()[0:1], scratch[0:1], tb=0)
        return JSON()


def read_put_packets_test():
    with CollectiveProgram("read_put_packets_test", TestCollective(2, 0, 0), 2, protocol="LL"):
        scratch = [Buffer(rank, 2) for rank in range(2)]
        for rank in range(2):
            MemoryChannel(1 - rank, rank).read_put_packets(scratch[1 - rank][1:2], scratch[rank][0:1], tb=0)
        return JSON()


def allreduce_pipeline(name, ranks):
    with CollectiveProgram(name, AllReduce(ranks, 1, True), ranks, reuse_resources=True):
        switch = SwitchChannel(rank_list=[0, 1], buffer_type=BufferType.scratch)
        assert switch.channel_ids == {0: 0, 1: 0}
        scratch = [Buffer(rank, ranks) for rank in range(ranks)]
        for r in range(ranks):
            rank, peer = Rank(r), (r + 1) % ranks
            ready, done = MemoryChannel(peer, r), MemoryChannel(peer, r)
            assert (done.channel_id, done.src_rank, done.dst_rank, done.channel_type) == (1, r, peer, ChannelType.memory)
            copied, reduced = Semaphore(r, 0), Semaphore(r, 0)
            with LoopIterationContext(unit=2**20, num_chunks=1):
                for i in range(ranks):
                    rank.copy(scratch[r][i : i + 1], rank.get_input_buffer()[i : i + 1], tb=0)
                ready.signal(tb=0, data_sync=SyncType.before)
                ready.wait(tb=0, data_sync=SyncType.after)
                copied.release(tb=0)
                copied.acquire(tb=1, data_sync=SyncType.after)
                switch.at_rank(r).reduce(buffer_offset=r, size=1, dst_chunk=scratch[r][r : r + 1], tb=1)
                switch.at_rank(r).broadcast(src_chunk=scratch[r][r : r + 1], buffer_offset=r, size=1, tb=1)
                done.signal(tb=1, data_sync=SyncType.before)
                reduced.release(tb=1)
                reduced.acquire(tb=2)
                done.wait(tb=2, data_sync=SyncType.after)
                for i in range(ranks):
                    rank.copy(rank.get_output_buffer()[i : i + 1], scratch[r][i : i + 1], tb=2)
        return JSON()


def allgather_switch_packets(name, ranks):
    with CollectiveProgram(name, AllGather(ranks, 1, True), ranks, protocol="LL", auto_sync=False, use_double_scratch_buffer=True,
                           num_threads_per_block=256, min_message_size=1024, max_message_size=1 << 20):
        scratch = [Buffer(rank, ranks) for rank in range(ranks)]
        switch = SwitchChannel(list(range(ranks)), BufferType.scratch)
        for r in range(ranks):
            rank = Rank(r)
            output = rank.get_output_buffer()
            rank.copy_packets(scratch[r][r : r + 1], output[r : r + 1], tb=0)
            switch.broadcast_packets(r, scratch[r][r : r + 1], r, 1, 0)
            for i in range(ranks):
                rank.unpack_packets(output[i : i + 1], scratch[r][i : i + 1], tb=i)
        return JSON()


def reduce_packets(name, ranks, **more):
    with CollectiveProgram(name, AllReduce(ranks, 1, True), **packets(ranks, **more)):
        ranks = [Rank(0), Rank(1)]
        channels = [MemoryChannel(1, 0), MemoryChannel(0, 1)]
        data, scratch = [rank.get_input_buffer() for rank in ranks], [Buffer(0, 3), Buffer(1, 3)]
        channels[0].put_packets(scratch[1][1:2], data[0][1:2], tb=0)
        channels[1].put_packets(scratch[0][0:1], data[1][0:1], tb=0)
        ranks[0].reduce(data[0][0:1], [scratch[0][0:1]], tb=1, packet=True)
        channels[0].put_packets(scratch[1][0:1], data[0][0:1], tb=1)
        ranks[1].reduce(data[1][1:2], [scratch[1][1:2]], tb=1, packet=True)
        ranks[1].copy_packets(scratch[1][2:3], data[1][1:2], tb=1)
        channels[1].read_put_packets(scratch[0][1:2], scratch[1][2:3], tb=1)
        ranks[0].unpack_packets(data[0][1:2], scratch[0][1:2], tb=2)
        ranks[1].unpack_packets(data[1][0:1], scratch[1][0:1], tb=2)
        return JSON()


def default(function, collective, ranks, size, in_place, least, most, *more, instances=1):
    def program(name, _):
        return function(AlgoSpec(
            name=name, collective=collective(ranks, 1, in_place), nranks_per_node=size, world_size=ranks, in_place=in_place, instances=instances,
            protocol="LL", auto_sync=False, reuse_resources=True, use_double_scratch_buffer=True, min_message_size=least,
            max_message_size=most, tags={"default": 1}), *more).to_json()
    return program


def named(program):
    return lambda name, ranks: program()


PROGRAMS = {
    "unit_tests/copy_test-1ranks": named(copy_test),
    "unit_tests/barrier_test-1ranks": named(barrier_test),
    "unit_tests/flush/flush_test-2ranks": named(flush_test),
    "unit_tests/get/get_test-2ranks": named(get_test),
    "unit_tests/put/put_with_signal_test-2ranks": named(put_with_signal_test),
    "unit_tests/tbg/tbg_reduce_fuse_test-1ranks": named(reduce_test),
    "unit_tests/read_reduce/read_reduce_fuse_test-2ranks": named(read_reduce_test),
    "unit_tests/semaphore-1ranks": named(semaphore_test),
    "unit_tests/unpack_packet_test-1ranks": named(unpack_packets_test),
    "unit_tests/read_put_packet_test-2ranks": named(read_put_packets_test),
    "single_node/allreduce_pipeline-2ranks": allreduce_pipeline,
    "single_node/allgather_nvls_zero_copy_pkt-4ranks": allgather_switch_packets,
    "executor-tests/reduce_pack-2ranks": reduce_packets,
    "executor-tests/reduce_pack-2ranks-inst2": lambda name, ranks: reduce_packets(name, ranks, instances=2),
    "multi_node/send_recv-2ranks-1x2-inst1": send_recv(1),
    "multi_node/send_recv-4ranks-2x2-mask1-inst2": send_recv(2, instances=2),
    "multi_node/send_recv-8ranks-2x4-mask3-inst1": send_recv(4),
    "default_algos/allgather_multi_nodes-2ranks-2x1": default(allgather_multi_nodes, AllGather, 2, 1, False, 1 << 10, 8 << 20),
    "default_algos/allgather_multi_nodes-4ranks-2x2-inplace": default(allgather_multi_nodes, AllGather, 4, 2, True, 1 << 10, 8 << 20),
    "default_algos/allgather_multi_nodes-8ranks-4x2": default(allgather_multi_nodes, AllGather, 8, 2, False, 1 << 10, 8 << 20),
    "default_algos/allreduce_multi_nodes-4ranks-2x2-tbg1": default(allreduce_multi_nodes, AllReduce, 4, 2, True, 1 << 10, 64 << 10, 1),
    "default_algos/allreduce_multi_nodes-4ranks-2x2-tbg4": default(allreduce_multi_nodes, AllReduce, 4, 2, True, 128 << 10, 2 << 20, 4),
    "default_algos/allreduce_multi_nodes-4ranks-2x2-tbg1-inst2": default(
        allreduce_multi_nodes, AllReduce, 4, 2, True, 1 << 10, 64 << 10, 1, instances=2),
    "default_algos/allreduce_multi_nodes-16ranks-2x8-1K_64K": default(allreduce_multi_nodes, AllReduce, 16, 8, True, 1 << 10, 64 << 10, 1),
    "default_algos/reducescatter_multi_nodes-2ranks-1x2-tbg4": default(
        reducescatter_multi_nodes, ReduceScatter, 2, 2, True, 1 << 10, 8 << 20, 4),
    "default_algos/reducescatter_multi_nodes-4ranks-2x2-tbg1": default(
        reducescatter_multi_nodes, ReduceScatter, 4, 2, True, 1 << 10, 8 << 20, 1),
}


def check_plans():
    expected = sums()
    for name, program in PROGRAMS.items():
        last = name.rsplit("/", 1)[-1]
        ranks = int(last.split("ranks")[0].rsplit("-", 1)[-1])
        text = program(last, ranks)
        assert hashlib.sha256(text.encode()).hexdigest() == expected[name], f"{name}: another plan than that of MSCCL++"


# Names, programs and mistakes. ---------------------------------------------------------------------------------------------------


def check_names():
    for module, names in {
        "channel": "MemoryChannel PortChannel SwitchChannel BufferType ChannelType SyncType ReduceOperationType Instruction Chunk RankGroup "
                   "RemoteBuffer DataAccess DataAccessType ThreadBlockGroup get_program LocalChunk RemoteChunk ThreadBlockGroupInfo List Dict "
                   "dataclass field defaultdict",
        "rank": "Rank BaseBuffer Buffer Semaphore BufferType SyncType Chunk",
        "general": "JSON get_program",
        "program": "CollectiveProgram MemoryChannel AllReduce Semaphore AlgoSpec ReplicationPolicy Gpu json BufferType",
        "collectives": "Collective TestCollective AllGather AllReduce ReduceScatter AllToAll SendRecv BufferType BaseBuffer",
        "loop": "LoopIterationContext PipelineOperation get_program set_program",
        "thread_block_group": "ThreadBlockGroup",
        "utils": "AlgoSpec ReplicationPolicy",
        "internal.types": "SyncType ReduceOperationType BufferType ChannelType ReplicationPolicy Instruction Chunk RankGroup",
        "internal.globals": "get_program set_program",
    }.items():
        scope = {}
        exec(f"from mscclpp.language.{module} import *", scope)
        missing = [name for name in names.split() if name not in scope]
        assert not missing, f"{module}: {missing}"
    assert str(Instruction.reduce_copy_send_packet) == "recspkt" and f"{BufferType.scratch}" == "s"
    assert SyncType.before | SyncType.after is SyncType.both and SyncType.both ^ SyncType.after is SyncType.before
    assert SyncType.before & SyncType.after is SyncType.none
    assert hash(Chunk(0, BufferType.input, 1, 2)) == hash(Chunk(0, BufferType.input, 1, 2)) and ThreadBlockGroup([3, 1]).get_internal_id(1) == 1


def check_documentation():
    """The program of docs/plans.md gives the plan of that of examples/plan: the tests of plan/dsl compare the latter."""
    import contextlib
    import io
    with open(os.path.join(os.path.dirname(SUMS), "../../../docs/plans.md"), encoding="utf-8") as text:
        program = text.read().split("```python\n")[1].split("```")[0]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(program, {})
    plan = json.loads(out.getvalue())
    assert [op["name"] for op in plan["gpus"][0]["threadblocks"][0]["ops"]] == [
        "nop", "rlxsignal", "nop", "rlxwait", "nop", "rres", "nop", "signal", "wait", "nop"]


def check_program():
    assert AllToAll(4, 2, False).init_buffers()[3][BufferType.output].size == 8 and ReduceScatter(4, 2, True).init_buffers()[0][BufferType.output].size == 2
    try:
        with CollectiveProgram("x", AllToAll(2, 1, True), 2, replication_policy=ReplicationPolicy.none, instances=2) as prog:
            Rank(0).copy(Rank(0).get_input_buffer()[1:2], Rank(0).get_input_buffer()[0:1], tb=1)
            raise KeyError("the program's own")
    except KeyError:
        pass
    text = prog.to_json()
    assert text == prog.to_json() and json.loads(text) == json.loads(prog.to_json(indent=None, sort_keys=True))
    assert [b["ops"][0]["src_buff"][0]["index"] for b in json.loads(text)["gpus"][0]["threadblocks"][2:]] == [0, 0]

    class Own(Collective):
        def init_buffers(self):
            return [{BufferType.input: BaseBuffer(r, BufferType.input, 0, 1 + r), BufferType.output: BaseBuffer(r, BufferType.output, 0, 2)}
                    for r in range(self.num_ranks)]

    plan = json.loads(CollectiveProgram("own", Own(2, 1, False), 2).to_json())
    assert plan["collective"] == "custom" and [g["input_chunks"] for g in plan["gpus"]] == [1, 2]


def check_fusions():
    """Neighbors become one operation, with the order of operands and the joins that MSCCL++'s rules give."""

    def ops(block=0):
        return json.loads(JSON())["gpus"][0]["threadblocks"][block]["ops"]

    def names(block=0):
        return [op["name"] for op in ops(block)]

    with CollectiveProgram("x", TestCollective(3, 3, 3), 3, protocol="LL"):
        rank, first, second = Rank(0), MemoryChannel(1, 0), MemoryChannel(2, 0)
        data, out, scratch = rank.get_input_buffer(), rank.get_output_buffer(), [Buffer(r, 4) for r in range(3)]
        rank.reduce(data[0:1], [data[1:2]], tb=0, dst_chunk=out[0:1])
        rank.reduce(data[0:1], [data[2:3]], tb=0, dst_chunk=out[0:1])
        first.put(Rank(1).get_output_buffer()[2:3], out[0:1], tb=0)
        second.put(Rank(2).get_output_buffer()[1:2], out[0:1], tb=0)
        rank.reduce(data[0:1], [scratch[0][0:1], scratch[0][1:2]], tb=1, dst_chunk=out[1:2], packet=True)
        rank.copy_packets(scratch[0][2:3], out[1:2], tb=1)
        first.put_packets(scratch[1][3:4], out[1:2], tb=1)
        second.read_put_packets(scratch[2][3:4], scratch[0][2:3], tb=1)
        assert names() == ["res"] and names(1) == ["recspkt"]
        assert [x.get("buffer_id") for x in ops()[0]["dst_buff"]] == [None, 0, 1] and len(ops()[0]["src_buff"]) == 3
        assert [x.get("buffer_id") for x in ops(1)[0]["dst_buff"]] == [None, None, 0, 1]
    for fusion, wanted in {True: ["nop", "signal", "nop", "rlxwait", "nop", "wait"], False: ["nop", "signal", "nop", "signal", "nop", "rlxwait", "nop", "nop", "wait"]}.items():
        with CollectiveProgram("x", TestCollective(2, 0, 0), 2, instr_fusion=fusion):
            for r in range(2):
                one, other = MemoryChannel(1 - r, r), MemoryChannel(1 - r, r)
                one.signal(tb=0)
                other.signal(tb=0, data_sync=SyncType.none)
                one.wait(tb=0, relaxed=True)
                other.wait(tb=0, data_sync=SyncType.before)
            assert names() == wanted
    with CollectiveProgram("x", TestCollective(1, 4, 4), 1):
        rank, data, out = Rank(0), Rank(0).get_input_buffer(), Rank(0).get_output_buffer()
        for to, source in ((out[0:1], data[0:1]), (out[1:2], data[0:1]), (data[0:1], data[1:2]), (out[2:3], data[0:1]), (out[2:4], data[2:4])):
            rank.copy(to, source, tb=0)
        assert names() == ["copy", "copy", "nop", "copy", "nop", "copy", "nop", "copy"]


def raises(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), f"{error!r}: expected {text!r}"
        return type(error)
    else:
        raise AssertionError(f"nothing was raised: expected {kind.__name__}: {text}")


def check_errors():
    for call in (JSON, lambda: Rank(0), lambda: MemoryChannel(1, 0), lambda: Buffer(0, 1), lambda: Semaphore(0, 0)):
        raises(RuntimeError, "No Program in context", call)
    raises(AssertionError, "Given protocol: LL128. Must be either Simple, LL", lambda: CollectiveProgram("x", AllReduce(2, 1, True), 2, protocol="LL128"))
    raises(IndexError, "", lambda: CollectiveProgram("x", AllReduce(2, 1, True), 3))
    raises(ValueError, "Duplicate thread block found at index 2: 0", lambda: ThreadBlockGroup([0, 1, 0]))
    raises(ValueError, "Thread block 2 not found", lambda: ThreadBlockGroup([0, 1]).get_internal_id(2))
    raises(ValueError, "requires protocol='LL'", lambda: allgather_multi_nodes(AlgoSpec("x", AllGather(2, 1, True), 1, 2, True, 1, "Simple")))
    with CollectiveProgram("x", TestCollective(2, 2, 2), 2, protocol="LL") as prog:
        rank, channel, port, scratch = Rank(0), MemoryChannel(1, 0), PortChannel(1, 0), Buffer(0, 2)
        data, peers = rank.get_input_buffer(), Rank(1).get_input_buffer()
        raises(RuntimeError, "Rank 2 is out of bounds. Number of ranks: 2", lambda: Rank(2))
        raises(AttributeError, "Rank 2 is out of bounds. Number of ranks: 2", lambda: Buffer(2, 1))
        raises(RuntimeError, "Source rank 2 is out of bounds. Number of ranks: 2", lambda: MemoryChannel(0, 2))
        raises(RuntimeError, "One or more ranks in [0, 1, 2] are out of bounds. Number of ranks: 2", lambda: SwitchChannel([0, 1, 2], BufferType.input))
        kind = raises(RuntimeError, "Rank 2 is not part of this SwitchChannel's rank group.", lambda: SwitchChannel([0, 1], BufferType.input).at_rank(2))
        assert kind is RuntimeError, kind
        raises(KeyError, "Rank 1 is not part of", lambda: SwitchChannel([0], BufferType.input).reduce(1, 0, 1, data[0:1], 0))
        raises(TypeError, "Buffer indices must be slices, not int", lambda: data[0])
        raises(ValueError, "does not support step != 1 (got step=2)", lambda: data[0:2:2])
        raises(ValueError, "(got start=-1, stop=None)", lambda: data[-1:])
        raises(ValueError, "Buffer slice start (2) must be <= stop (1)", lambda: data[2:1])
        raises(RuntimeError, "Index range from 1 - 3 is out of bounds for buffer i. Buffer size: 2", lambda: data[1:3])
        raises(RuntimeError, "Either 'tb' (thread block ID)", lambda: rank.copy(data[0:1], data[1:2]))
        raises(ValueError, "Either 'tb' (thread block ID)", lambda: MemoryChannel(0, 0).read_put_packets(scratch[0:1], scratch[1:2]))
        raises(RuntimeError, "Other chunk empty.", lambda: rank.reduce(data[0:1], [], tb=0))
        raises(RuntimeError, "Destination chunk must be of type scratch.", lambda: port.put_packets(peers[0:1], data[0:1], tb=0))
        raises(RuntimeError, "Dst chunk rank 0 does not match current channel dst rank 1.", lambda: channel.put(data[0:1], data[0:1], tb=0))
        raises(TypeError, "", lambda: channel.signal(tb=None))
        raises(TypeError, "", lambda: port.signal(tb=0, relaxed=True))
        raises(AttributeError, "", lambda: channel.put_packet(peers[0:1], data[0:1], tb=0))
        with LoopIterationContext(1, 1) as target:
            assert target is None and prog.loop_context is not None
            raises(RuntimeError, "Nested Pipelines are not Supported.", LoopIterationContext(1, 1).__enter__)
        assert prog.loop_context is None
        channel.signal(tb=0)
        raises(RuntimeError, "Signal/Wait mismatch on memory: rank 0 issues 1 signal(s) to rank 1, but rank 1 performs 0 wait(s)", JSON)
        MemoryChannel(0, 1).wait(tb=0)
        JSON()
    raises(RuntimeError, "No Program in context", JSON)


for check in (check_names, check_plans, check_documentation, check_program, check_fusions, check_errors):
    check()
print("the language is right")
