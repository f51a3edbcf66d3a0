"""An all-reduce in two levels."""

from ..language.program import CollectiveProgram
from ..language.rank import Buffer, Rank
from ..language.utils import AlgoSpec
from ._hosts import Hosts, groups, without


def allreduce_multi_nodes(spec: AlgoSpec, thread_block_group_size: int) -> CollectiveProgram:
    """Reduce a part inside of each host, exchange it between GPUs of the same place, and share the result inside of the host."""
    hosts = Hosts(spec)
    wide = hosts.count  # chunks of a GPU's part
    exchange, spread = hosts.ranks, hosts.ranks + wide * hosts.count  # regions of scratch
    with CollectiveProgram.from_spec(spec) as prog:
        tbgs, everyone = groups(1, hosts.size - 1, thread_block_group_size)
        scratch = [Buffer(rank, 2 * hosts.ranks + wide * hosts.count) for rank in range(hosts.ranks)]
        memory, ports = hosts.memory(), hosts.ports()

        def part(buffer, i, region=0):
            return buffer[region + i * wide : region + (i + 1) * wide]

        for r in range(hosts.ranks):
            rank, place, host = Rank(r), hosts.place(r), hosts.host(r)
            data = rank.get_input_buffer()
            mine = part(data, place)
            for peer in hosts.inside(r):
                memory[peer, r].put_packets(
                    part(scratch[peer], place), part(data, hosts.place(peer)), tb_group=tbgs[without(hosts.place(peer), place)])
            rank.reduce(mine, [part(scratch[r], hosts.place(peer)) for peer in hosts.inside(r)], tb_group=everyone, packet=True)
            rank.copy_packets(part(scratch[r], place), mine, tb_group=everyone)
            rank.barrier([0, *everyone.tb_list])

            for peer in hosts.across(r):
                ports[peer, r].put_packets(part(scratch[peer], host, exchange), part(scratch[r], place), tb=0)
            rank.reduce(mine, [part(scratch[r], hosts.host(peer), exchange) for peer in hosts.across(r)], tb_group=everyone, packet=True)
            rank.copy_packets(part(scratch[r], host, exchange), mine, tb_group=everyone)

            for peer in hosts.inside(r):
                memory[peer, r].read_put_packets(
                    part(scratch[peer], place, spread), part(scratch[r], host, exchange), tb_group=tbgs[without(hosts.place(peer), place)])
            for peer in hosts.inside(r):
                rank.unpack_packets(part(data, hosts.place(peer)), part(scratch[r], hosts.place(peer), spread),
                                    tb_group=tbgs[without(hosts.place(peer), place)])
    return prog
