"""Memory, windows, channels and proxies between two ranks on the host."""

import array
import ctypes
import gc
import sys
import threading

import mscclpp

first = mscclpp.Communicator()
comm = first.split(0)
rank, peer = comm.rank, 1 - comm.rank


def refused(kind, text, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as problem:
        if text not in str(problem):
            sys.exit(f"{problem}: expected {text}")
        return problem
    sys.exit(f"{text}: nothing was raised")


with comm:
    memory = comm.alloc(4096)
    view = memory.view()
    assert memory.size() == 4096 and bytes(view) == bytes(4096) and memory.data()

    memory.write(b"abc", 5)
    assert memory.read(4, 4) == b"\0abc" and memory.read(offset=4094) == bytes(2)
    memory.write(bytes(8))
    refused(mscclpp.InvalidUsage, "within the 4096", memory.read, 2, 4095)
    refused(mscclpp.InvalidUsage, "within the 4096", memory.write, b"abc", -1)

    with comm.window(memory) as window:
        assert window.peer(rank) == (memory.data(), 4096)
        view[7] = 10 + rank
        comm.barrier()
        assert (ctypes.c_ubyte * 8).from_address(window.peer(peer)[0])[7] == 10 + peer
        handles = window.channels()
        assert len(handles) == 2 and handles[rank].raw == bytes(64) != handles[peer].raw
        comm.all_reduce(memory, op=mscclpp.ReduceOp.MAX)  # in place, in the window
        assert view[7] == 11
        refused(mscclpp.InvalidUsage, "rank 2", window.peer, 2)
        refused(mscclpp.InvalidUsage, "lies anywhere", window.flat)
        comm.barrier()
    refused(mscclpp.ClosedError, "closed", window.flat)
    for given in (memory, memory if rank else None):  # on the host nothing maps memory side by side, and the job goes on
        refused(mscclpp.UnsupportedError, "arrange", comm.arrange, given)
    refused(mscclpp.ClosedError, "closed", window.peer, 0)

    source = array.array("B", [40 + rank] * 4096)
    view[:] = bytes(4096)
    comm.barrier()
    with comm.register(source) as registered, comm.port_channel(peer, registered, memory) as channel:
        assert len(channel.device_handle().raw) == 128
        if rank == 0:
            channel.put_with_signal(100, 0, 50)
            channel.wait()
            assert view[3] == 41 and view[13] == 0
            refused(mscclpp.TimeoutError, "", channel.wait, 0.001)
        else:
            channel.wait()
            assert (view[99], view[100], view[149], view[150]) == (0, 40, 40, 0)
            channel.put(3, 0, 10)
            channel.signal()
            channel.flush()
        comm.barrier()
    refused(mscclpp.InvalidUsage, "read-only", comm.register, b"1234")
    refused(mscclpp.InvalidUsage, "time limit", comm.settle, (), -1)

    with comm.memory_channel(peer, memory) as channel:
        assert len(channel.device_handle().raw) == len(bytes(channel.device_handle())) == 64
    view[:] = bytes(4096)
    comm.switch_channel(memory).close()
    assert comm.control()
    refused(mscclpp.InvalidUsage, "rank 5 of 2", comm.memory_channel, 5, memory)

    # Memory that was freed is refused; what a group still needs is kept.
    freed = comm.alloc(64)
    freed.close()
    refused(mscclpp.ClosedError, "closed", comm.all_reduce, freed)
    refused(mscclpp.ClosedError, "closed", freed.read)
    refused(mscclpp.ClosedError, "memory was closed", comm.arrange, freed)
    for function in (comm.window, lambda m: comm.memory_channel(peer, m), comm.switch_channel):
        refused(mscclpp.Error, "memory", function, freed)
    got = bytearray(100000)
    with comm.group():
        comm.send(bytearray([rank + 1]) * 100000, peer)
        comm.recv(got, peer)
        gc.collect()
        junk = [bytearray(100000) for _ in range(20)]
    assert set(got) == {peer + 1}, set(got)

    seen = []

    def take(proxy, first, second, position):
        seen.append((first, second, threading.get_ident()))
        proxy.complete(position)
    with comm.proxy(16, take) as proxy:
        for i in range(100):
            position = proxy.push(i, i + 1)
        proxy.flush(position)
        assert [s[:2] for s in seen] == [(i, i + 1) for i in range(100)] and seen[0][2] != threading.get_ident()
        refused(mscclpp.TimeoutError, "", proxy.flush, position + 5, 0.001)
        refused(mscclpp.InvalidUsage, "63 bits", proxy.push, 0, 1 << 63)
        assert proxy.device_handle().raw
    refused(mscclpp.ClosedError, "closed", proxy.push, 1)
    refused(mscclpp.InvalidUsage, "power of two", comm.proxy, 5, take)

    def fail(proxy, first, second, position):
        raise KeyError("in a handler")
    proxy = comm.proxy(16, fail)
    proxy.push(1)
    assert isinstance(refused(mscclpp.Error, "", proxy.close).__cause__, KeyError)
    proxy.close()

    seen.clear()
    left = comm.proxy(16, lambda proxy, first, second, position: seen.append(first))
    for i in range(10):
        left.push(i)
assert seen == list(range(10)), seen  # the end of the communicator performs them
refused(mscclpp.ClosedError, "closed", memory.data)
refused(mscclpp.ClosedError, "closed", left.push, 1)

# A communicator of its own kind, from what the launcher says; a job is joined once, so this one is split off.
class Mpi:
    """What mpi4py's communicator has, over the first one."""

    rank, size = rank, 2

    @staticmethod
    def bcast(value, root):
        return values.exchange(value or bytes(128))[root]


values = first.split(0)
group = mscclpp.CommGroup(mpi_comm=Mpi)
with group:
    assert (group.my_rank, group.nranks, group.nranks_per_node) == (rank, 2, 2)
    group.barrier()
    memory = group.communicator.alloc(4096)
    assert list(group.make_memory_channels(memory, [peer])) == [peer]
    group.make_port_channels(memory, [peer])[peer].close()
    semaphore = mscclpp.Host2HostSemaphore(group.communicator, peer)
    if rank == 0:
        assert not semaphore.poll()
        semaphore.signal()
        semaphore.wait(300)
    else:
        semaphore.wait(300)
        semaphore.signal()
    semaphore.close()
    group.barrier()

# A rank leaves: what does not need it goes on.
left = values.split(0)
values.exchange(b"x")
if rank == 1:
    left.leave("its work is done")
    refused(mscclpp.ClosedError, "its work is done", left.barrier)
else:
    problem = refused(mscclpp.PeerError, "its work is done", lambda: left.recv(bytearray(4), 1))
    assert problem.rank == 1, problem.rank
    left.close()
values.barrier()
values.close()
first.close()
print(f"rank {rank} is done")
