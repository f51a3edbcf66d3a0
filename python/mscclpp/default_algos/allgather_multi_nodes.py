"""An all-gather in two levels."""

from ..language.collectives import AllGather
from ..language.program import CollectiveProgram
from ..language.rank import Buffer, Rank
from ..language.utils import AlgoSpec
from ._hosts import Hosts, expect, without


def allgather_multi_nodes(spec: AlgoSpec) -> CollectiveProgram:
    """Gather inside of each host, exchange between GPUs of the same place, and share what came inside of the host."""
    expect(spec, AllGather, "allgather_multi_nodes")
    if spec.in_place != spec.collective.inplace:
        raise ValueError("spec.in_place must match spec.collective.inplace")
    hosts = Hosts(spec)
    inside, across = hosts.size - 1, hosts.count - 1
    received, packed, spread = inside, inside + across, inside + 2 * across  # slots of scratch
    with CollectiveProgram.from_spec(spec) as prog:
        scratch = [Buffer(rank, inside + 2 * across + inside * across) for rank in range(hosts.ranks)]
        memory, ports = hosts.memory(), hosts.ports()

        def slot(rank, i):
            return scratch[rank][i : i + 1]

        for r in range(hosts.ranks):
            rank, place, host = Rank(r), hosts.place(r), hosts.host(r)
            output = rank.get_output_buffer()
            source = output[r : r + 1]
            if not spec.in_place:
                source = rank.get_input_buffer()[0:1]
                rank.copy(output[r : r + 1], source, tb=0)
            for peer in hosts.inside(r):
                near = without(hosts.place(peer), place)
                memory[peer, r].put_packets(slot(peer, without(place, hosts.place(peer))), source, tb=near)
                rank.unpack_packets(output[peer : peer + 1], slot(r, near), tb=inside + near)
            first = 2 * inside
            for peer in hosts.across(r):
                far = without(hosts.host(peer), host)
                rank.copy_packets(slot(r, packed + far), source, tb=first + far)
                ports[peer, r].read_put_packets(
                    slot(peer, received + without(host, hosts.host(peer))), slot(r, packed + far), tb=first + far)
                rank.unpack_packets(output[peer : peer + 1], slot(r, received + far), tb=first + across + far)
            first += 2 * across
            for origin in hosts.across(r):
                far = without(hosts.host(origin), host)
                for peer in hosts.inside(r):
                    theirs = without(place, hosts.place(peer)) + inside * far
                    own = without(hosts.place(peer), place) + inside * far
                    memory[peer, r].read_put_packets(slot(peer, spread + theirs), slot(r, received + far), tb=first + own)
                    part = hosts.host(origin) * hosts.size + hosts.place(peer)
                    rank.unpack_packets(output[part : part + 1], slot(r, spread + own), tb=first + inside * across + own)
    return prog
