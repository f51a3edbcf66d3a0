"""CommGroup: a communicator made from an MPI communicator, a group of torch.distributed, or an address, as MSCCL++ has it."""

from __future__ import annotations

from . import _errors
from ._communicator import Communicator
from ._unique_id import UniqueId

TYPE_CHECKING = False  # checkers of types take it for true
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._objects import MemoryChannel, PortChannel

__all__ = ["CommGroup", "Host2HostSemaphore"]


class CommGroup:
    """All ranks of an MPI communicator, of a group of torch.distributed, or of the launcher's job.

    Args:
        mpi_comm: a communicator of mpi4py.
        torch_group: a process group of torch.distributed, of any backend.
        rank, size: with neither of them: what the launcher's variables have to say, or the program is refused.
        device: as Communicator has it.

    Attributes:
        communicator: the Communicator.
        my_rank, nranks: the number of this rank, and how many there are.
        nranks_per_node: how many of them are on this host.
    """

    def __init__(self, mpi_comm: object = None, torch_group: object = None, interfaceIpPortTrio: str = "", rank: int | None = None,
                 size: int | None = None, *, device: str | None = None) -> None:
        if interfaceIpPortTrio:
            raise _errors.make(2, "CommGroup by interface, address and port: expected a launcher, mpi_comm or torch_group: a job of this library has a secret")
        if mpi_comm is not None:
            own = mpi_comm.bcast(UniqueId.create().bytes if mpi_comm.rank == 0 else None, 0)
            self.communicator = Communicator(own, mpi_comm.rank, mpi_comm.size, device=device)
        elif torch_group is not None:
            import torch.distributed as dist
            me, box = torch_group.rank(), [None]
            if me == 0:
                box[0] = UniqueId.create().bytes
            dist.broadcast_object_list(box, group=torch_group, group_src=0)
            self.communicator = Communicator(box[0], me, torch_group.size(), device=device)
        elif rank is not None or size is not None:
            self.communicator = Communicator(device=device)
            if (rank, size) != (self.communicator.rank, self.communicator.size):
                found = self.communicator.rank, self.communicator.size
                self.communicator.abort("another place was expected")
                raise _errors.invalid(f"CommGroup: rank {rank} of {size}: the launcher's variables say rank {found[0]} of {found[1]}")
        else:
            raise RuntimeError("Either the interface or mpi_group need to be specified")
        self.my_rank, self.nranks = self.communicator.rank, self.communicator.size
        hosts = self.communicator.exchange(_host())
        self.nranks_per_node = hosts.count(hosts[self.my_rank])

    def barrier(self) -> None:
        """Wait, on the host, until all ranks are here."""
        self.communicator.exchange(b"\0")

    def make_memory_channels(self, tensor: object, peers: Iterable[int]) -> dict[int, MemoryChannel]:
        """Return a memory channel to each of some peers, which do the same; all open the memory of their tensor to the others."""
        memory = self._memory(tensor)
        return {peer: self.communicator.memory_channel(peer, memory) for peer in sorted(peers)}

    def make_port_channels(self, tensor: object, peers: Iterable[int]) -> dict[int, PortChannel]:
        """Return a port channel to each of some peers, which do the same; puts read and write the memory of the tensors."""
        memory = self._memory(tensor)
        return {peer: self.communicator.port_channel(peer, memory, memory) for peer in sorted(peers)}

    def _memory(self, tensor):
        from ._objects import RegisteredMemory
        return tensor if isinstance(tensor, RegisteredMemory) else self.communicator.register(tensor)

    def close(self) -> None:
        """Close the communicator."""
        self.communicator.close()

    def __enter__(self) -> CommGroup:
        return self

    def __exit__(self, *problem: object) -> None:
        self.communicator.__exit__(*problem)


def _host() -> bytes:
    """Return this host's name in a fixed number of bytes."""
    import socket
    return socket.gethostname().encode()[:64].ljust(64, b"\0")


class Host2HostSemaphore:
    """A semaphore between the hosts of two ranks, over a port channel: each end makes one.

    Args:
        communicator: on the host.
        peer: the rank of the other end.
    """

    def __init__(self, communicator: Communicator, peer: int) -> None:
        self._memory = communicator.alloc(64)
        self._channel = communicator.port_channel(peer, self._memory, self._memory)

    def signal(self) -> None:
        """Let a wait of the peer return, after what port channels have put before."""
        self._channel.signal()

    def poll(self) -> bool:
        """Take a signal of the peer if there is one; it never waits."""
        try:
            self._channel.wait(1e-9)
        except _errors.TimeoutError:
            return False
        return True

    def wait(self, timeout: float | None = None) -> None:
        """Wait for a signal of the peer, and take it; at most timeout seconds."""
        self._channel.wait(timeout)

    def close(self) -> None:
        """End this end."""
        self._channel.close()
        self._memory.close()
