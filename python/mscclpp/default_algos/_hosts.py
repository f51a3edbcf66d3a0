"""Which ranks share a host."""

from ..language.channel import MemoryChannel, PortChannel, ThreadBlockGroup


class Hosts:
    """Ranks in hosts of the same size; a rank's place is its number within its host."""

    def __init__(self, spec):
        self.ranks, self.size = spec.world_size, spec.nranks_per_node
        self.count = self.ranks // self.size

    def host(self, rank):
        return rank // self.size

    def place(self, rank):
        return rank % self.size

    def inside(self, rank):
        """Return the other ranks of a rank's host."""
        first = rank - self.place(rank)
        return [peer for peer in range(first, first + self.size) if peer != rank]

    def across(self, rank):
        """Return the ranks of the same place on other hosts."""
        return [peer for peer in range(self.place(rank), self.ranks, self.size) if peer != rank]

    def memory(self):
        """Make memory channels inside of the hosts, by peer and rank."""
        return {(peer, rank): MemoryChannel(peer, rank) for rank in range(self.ranks) for peer in self.inside(rank)}

    def ports(self):
        """Make port channels across the hosts, by peer and rank."""
        return {(peer, rank): PortChannel(peer, rank) for rank in range(self.ranks) for peer in self.across(rank)}


def without(x, y):
    """Return the place of x among all numbers but y."""
    return x if x < y else x - 1


def groups(first, count, size):
    """Make groups of consecutive thread blocks, and one of all of them."""
    made = [ThreadBlockGroup(list(range(first + i * size, first + (i + 1) * size))) for i in range(count)]
    return made, ThreadBlockGroup(list(range(first, first + count * size)))


def expect(spec, collective, name):
    """Raise ValueError for a specification that a program is not made for."""
    if not isinstance(spec.collective, collective):
        raise ValueError(f"{name} requires a collective {collective.__name__}")
    if spec.protocol != "LL":
        raise ValueError(f"{name} requires protocol='LL'")
    if spec.world_size % spec.nranks_per_node != 0:
        raise ValueError("world_size must be divisible by nranks_per_node")
    if spec.collective.chunk_factor != 1:
        raise ValueError(f"{name} requires chunk_factor=1")
