"""Channels between ranks."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Dict, List

from ._compiler import chunk as _chunk
from .internal.globals import get_program
from .internal.operations import *
from .thread_block_group import *


class _PeerChannel:
    """A channel that src_rank uses to reach dst_rank."""

    channel_type = ChannelType.none

    def __init__(self, dst_rank: int, src_rank: int) -> None:
        made = get_program().compiler(f"{self.channel_type}_channel", dst_rank=dst_rank, src_rank=src_rank)
        self._handle, self.channel_id = made["handle"], made["id"]
        self.dst_rank = dst_rank
        self.src_rank = src_rank

    def _order(self, call, tb, data_sync, relaxed=None):
        get_program().compiler(f"{self.channel_type}_{call}", handle=self._handle, tb=tb, data_sync=data_sync.value, relaxed=relaxed)

    def _move(self, call, dst_chunk, src_chunk, tb, tb_group=None):
        program = get_program()
        program.compiler(f"{self.channel_type}_{call}", handle=self._handle, dst=_chunk(dst_chunk), src=_chunk(src_chunk), tb=tb,
                         tb_group=program.group(tb_group))


class MemoryChannel(_PeerChannel):
    """A channel to mapped memory of a peer: thread blocks load and store it."""

    channel_type = ChannelType.memory

    def signal(self, tb: int, data_sync: SyncType = SyncType.both, relaxed: bool = False) -> None:
        """Signal the peer."""
        self._order("signal", tb, data_sync, relaxed)

    def wait(self, tb: int, data_sync: SyncType = SyncType.both, relaxed: bool = False) -> None:
        """Wait for a signal of the peer."""
        self._order("wait", tb, data_sync, relaxed)

    def get(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int | None = None, tb_group: ThreadBlockGroup | None = None) -> None:
        """Copy a chunk of the peer to one of this rank."""
        self._move("get", dst_chunk, src_chunk, tb, tb_group)

    def put(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int | None = None, tb_group: ThreadBlockGroup | None = None) -> None:
        """Copy a chunk of this rank to one of the peer."""
        self._move("put", dst_chunk, src_chunk, tb, tb_group)

    def read_put_packets(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int | None = None, tb_group: ThreadBlockGroup | None = None) -> None:
        """Wait for packets in scratch, and write them to scratch of the peer."""
        self._move("read_put_packets", dst_chunk, src_chunk, tb, tb_group)

    def put_packets(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int | None = None, tb_group: ThreadBlockGroup | None = None) -> None:
        """Write a chunk as packets to scratch of the peer."""
        self._move("put_packets", dst_chunk, src_chunk, tb, tb_group)

    def reduce(self, local_src_chunk: Chunk, remote_src_chunks: List[Chunk], tb: int | None = None, tb_group: ThreadBlockGroup | None = None,
               local_dst_chunk: Chunk | None = None, reduce_op: ReduceOperationType = ReduceOperationType.sum) -> None:
        """Reduce a chunk with chunks of the peer, to local_dst_chunk or the chunk itself."""
        program = get_program()
        program.compiler(
            "memory_reduce", handle=self._handle, dst=_chunk(local_src_chunk if local_dst_chunk is None else local_dst_chunk),
            src=_chunk(local_src_chunk), others=[_chunk(c) for c in remote_src_chunks], tb=tb, tb_group=program.group(tb_group),
            reduce_op=reduce_op.value)


class PortChannel(_PeerChannel):
    """A channel to a peer by an engine beside the thread blocks: transfers are requests to it."""

    channel_type = ChannelType.port

    def signal(self, tb: int, data_sync: SyncType = SyncType.both) -> None:
        """Signal the peer, after all transfers before."""
        self._order("signal", tb, data_sync)

    def wait(self, tb: int, data_sync: SyncType = SyncType.both) -> None:
        """Wait for a signal of the peer."""
        self._order("wait", tb, data_sync)

    def flush(self, tb: int, data_sync: SyncType = SyncType.both) -> None:
        """Wait until the sources of all transfers may be written again."""
        self._order("flush", tb, data_sync)

    def put(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int) -> None:
        """Request a transfer."""
        self._move("put", dst_chunk, src_chunk, tb)

    def put_with_signal(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int) -> None:
        """Request a transfer and a signal after it."""
        self._move("put_with_signal", dst_chunk, src_chunk, tb)

    def put_with_signal_and_flush(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int) -> None:
        """Request a transfer and a signal after it, and flush."""
        self._move("put_with_signal_and_flush", dst_chunk, src_chunk, tb)

    def put_packets(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int) -> None:
        """Request a transfer of packets in scratch."""
        self._move("put_packets", dst_chunk, src_chunk, tb)

    def read_put_packets(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int | None = None, tb_group: ThreadBlockGroup | None = None) -> None:
        """Wait for packets in scratch, and request their transfer."""
        self._move("read_put_packets", dst_chunk, src_chunk, tb, tb_group)


class SwitchChannel:
    """A channel over one buffer of every rank of a group, by a switch that reduces and multiplies what passes it."""

    channel_type = ChannelType.switch

    def __init__(self, rank_list: List[int], buffer_type: BufferType) -> None:
        made = get_program().compiler("switch_channel", list=list(rank_list), buffer=buffer_type.value)
        self._handle = made["handle"]
        self.channel_ids = {int(rank): number for rank, number in made["ids"].items()}
        self.buffer_type = buffer_type
        self.rank_group = RankGroup(len(rank_list), rank_list)

    def at_rank(self, rank: int) -> "SwitchChannel.SwitchChannelRankView":
        """Return the channel as a rank of the group uses it."""
        get_program().compiler("switch_at", handle=self._handle, rank=rank)
        return SwitchChannel.SwitchChannelRankView(self, rank)

    def reduce(self, rank: int, buffer_offset: int, size: int, dst_chunk: Chunk, tb: int, reduce_op: ReduceOperationType = ReduceOperationType.sum) -> None:
        """Reduce chunks of all ranks of the group to a chunk of the rank."""
        get_program().compiler("switch_reduce", handle=self._handle, rank=rank, offset=buffer_offset, size=size, dst=_chunk(dst_chunk),
                               tb=tb, reduce_op=reduce_op.value)

    def broadcast(self, rank: int, src_chunk: Chunk, buffer_offset: int, size: int, tb: int) -> None:
        """Copy a chunk of the rank to all ranks of the group."""
        get_program().compiler("switch_broadcast", handle=self._handle, rank=rank, offset=buffer_offset, size=size, src=_chunk(src_chunk), tb=tb)

    def broadcast_packets(self, rank: int, src_chunk: Chunk, buffer_offset: int, size: int, tb: int) -> None:
        """Wait for packets in scratch of the rank, and copy them to scratch of all ranks of the group."""
        get_program().compiler("switch_broadcast_packets", handle=self._handle, rank=rank, offset=buffer_offset, size=size,
                               src=_chunk(src_chunk), tb=tb)

    class SwitchChannelRankView:
        """A switch channel as one rank uses it."""

        def __init__(self, channel: "SwitchChannel", rank: int) -> None:
            self._channel = channel
            self._rank = rank

        def reduce(self, buffer_offset: int, size: int, dst_chunk: Chunk, tb: int, reduce_op: ReduceOperationType = ReduceOperationType.sum) -> None:
            """Reduce chunks of all ranks to a chunk of this one."""
            self._channel.reduce(self._rank, buffer_offset, size, dst_chunk, tb, reduce_op)

        def broadcast(self, src_chunk: Chunk, buffer_offset: int, size: int, tb: int) -> None:
            """Copy a chunk of this rank to all."""
            self._channel.broadcast(self._rank, src_chunk, buffer_offset, size, tb)

        def broadcast_packets(self, src_chunk: Chunk, buffer_offset: int, size: int, tb: int) -> None:
            """Copy packets of this rank to all."""
            self._channel.broadcast_packets(self._rank, src_chunk, buffer_offset, size, tb)
