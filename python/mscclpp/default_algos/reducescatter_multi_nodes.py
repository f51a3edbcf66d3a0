"""A reduce-scatter in two levels."""

from ..language.collectives import ReduceScatter
from ..language.program import CollectiveProgram
from ..language.rank import Buffer, Rank
from ..language.utils import AlgoSpec
from ._hosts import Hosts, expect, groups, without


def reducescatter_multi_nodes(spec: AlgoSpec, thread_block_group_size: int = 1) -> CollectiveProgram:
    """Reduce for every host inside of each host, and send each result to its host, which reduces again."""
    expect(spec, ReduceScatter, "reducescatter_multi_nodes")
    if not spec.in_place or not spec.collective.inplace:
        raise ValueError("reducescatter_multi_nodes requires in-place buffers")
    if thread_block_group_size <= 0:
        raise ValueError("thread_block_group_size must be positive")
    hosts = Hosts(spec)
    inside = hosts.size - 1
    packed = inside * hosts.count  # slots of scratch
    received = packed + hosts.count
    with CollectiveProgram.from_spec(spec) as prog:
        scratch = [Buffer(rank, received + hosts.count - 1) for rank in range(hosts.ranks)]
        tbgs, everyone = groups(0, inside + hosts.count, thread_block_group_size)
        memory, ports = hosts.memory(), hosts.ports()

        def slot(rank, i):
            return scratch[rank][i : i + 1]

        for r in range(hosts.ranks):
            rank, place, host = Rank(r), hosts.place(r), hosts.host(r)
            data = rank.get_input_buffer()
            for peer in hosts.inside(r):
                blocks = tbgs[without(hosts.place(peer), place)].tb_list
                for owner in range(hosts.count):
                    part = hosts.place(peer) + owner * hosts.size
                    memory[peer, r].put_packets(slot(peer, without(place, hosts.place(peer)) * hosts.count + owner),
                                                data[part : part + 1], tb=blocks[owner % len(blocks)])
            for owner in range(hosts.count):
                part, group = place + owner * hosts.size, tbgs[inside + owner]
                chunk = data[part : part + 1]
                packets = [slot(r, without(hosts.place(peer), place) * hosts.count + owner) for peer in hosts.inside(r)]
                if packets:
                    rank.reduce(chunk, packets, tb_group=group, packet=True)
                if hosts.count == 1:
                    continue
                rank.copy_packets(slot(r, packed + owner), chunk, tb_group=group)
                if owner != host:
                    ports[part, r].read_put_packets(slot(part, received + without(host, owner)), slot(r, packed + owner), tb_group=group)
            if hosts.count > 1:
                own = data[r : r + 1]
                rank.unpack_packets(own, slot(r, packed + host), tb_group=everyone)
                rank.reduce(own, [slot(r, received + i) for i in range(hosts.count - 1)], tb_group=everyone, packet=True)
    return prog
