"""Algorithms that a program chooses itself: execution plans, and those of the library by their names."""

from __future__ import annotations

import builtins
import hashlib
import json

from . import _errors, _streams, _types
from ._plans import ExecutionPlan, Executor, PacketType

TYPE_CHECKING = False  # checkers of types take it for true
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ._communicator import Communicator
    from .language.utils import AlgoSpec

__all__ = ["Algorithm", "AlgorithmCollection", "AlgorithmCollectionBuilder", "Request", "compile"]

_METHODS = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "alltoall": "all_to_all", "broadcast": "broadcast",
            "reduce": "reduce"}
_REDUCES = ("allreduce", "reducescatter", "reduce")
_ALL = (0, (1 << 64) - 1)


class Algorithm:
    """One way to perform a collective: an execution plan, or an algorithm of the library.

    Args:
        id: what tells it from others; None for its name.
        execution_plan: the plan.
        tags: names and numbers by which a selector may choose.
        constraint: the numbers of ranks that it is for; None for any, or the plan's.
        collective, native: instead of a plan the collective, such as "allreduce", and the name of one of the library's algorithms for
            it: communicator.query("algorithms.allreduce") has them.
    """

    class Constraint:
        """For which numbers of ranks an algorithm is: 0 for any."""

        def __init__(self, world_size: int = 0, n_ranks_per_node: int = 0) -> None:
            self.world_size, self.n_ranks_per_node = world_size, n_ranks_per_node

        def __repr__(self) -> str:
            return f"Constraint(world_size={self.world_size}, n_ranks_per_node={self.n_ranks_per_node})"

    def __init__(self, id: str | None = None, execution_plan: ExecutionPlan | None = None, tags: Mapping[str, int] | None = None,
                 constraint: Constraint | None = None, *, collective: str | None = None, native: str | None = None) -> None:
        if (execution_plan is None) == (native is None):
            raise _errors.invalid("algorithm: expected either a plan, or the name of one of the library's")
        if native is not None and collective not in _METHODS:
            raise _errors.invalid(f"algorithm {native} of {collective}: expected one of {', '.join(_METHODS)}")
        self._plan, self._native, self._tags = execution_plan, native, dict(tags or {})
        self._collective = collective if execution_plan is None else execution_plan.collective
        self._range = _ALL if execution_plan is None else (execution_plan.min_message_size, execution_plan.max_message_size)
        self.id = id if id is not None else self.name
        self.constraint = constraint or Algorithm.Constraint(0 if execution_plan is None else execution_plan.ranks)

    @property
    def name(self) -> str:
        """The plan's name, or the library's name of it."""
        return self._native if self._plan is None else self._plan.name

    @property
    def collective(self) -> str:
        """What it performs: allreduce, allgather, reducescatter, alltoall, broadcast or reduce."""
        return self._collective

    @property
    def message_size_range(self) -> tuple[int, int]:
        """The least and the largest size in bytes."""
        return self._range

    def set_message_size_range(self, min_message_size: int, max_message_size: int) -> None:
        """Say for which sizes one of the library's is used; TypeError for a plan, which says that itself."""
        if self._plan is not None:
            raise TypeError(f"{self!r}: expected an algorithm of the library: the sizes of a plan are in the plan")
        self._range = min_message_size, max_message_size

    @property
    def tags(self) -> dict[str, int]:
        """Its tags."""
        return dict(self._tags)

    @property
    def buffer_mode(self) -> str:
        """in_place where input and output are one buffer, else any."""
        return "in_place" if self._plan is not None and self._plan.in_place else "any"

    def is_dsl_algorithm(self) -> bool:
        """Report whether it is a plan."""
        return self._plan is not None

    def is_native_algorithm(self) -> bool:
        """Report whether it is one of the library's."""
        return self._plan is None

    def serves(self, communicator: Communicator, message_size: int) -> bool:
        """Report whether a size, and the ranks of a communicator, are what it is for."""
        return self._range[0] <= message_size <= self._range[1] and self.constraint.world_size in (0, communicator.size)

    def run(self, comm: Communicator, send: object, recv: object = None, *, op: int | None = None, stream: object = None,
            executor: Executor | None = None) -> None:
        """Perform it on arrays, as the methods of Communicator and Executor do; a plan needs an executor."""
        if self._plan is not None:
            self._executor(executor).run(self._plan, send, recv, stream=stream, op=_types.ReduceOp.SUM if op is None else op)
            return
        named = {"op": op} if op is not None and self._collective in _REDUCES else {}
        getattr(comm, _METHODS[self._collective])(send, recv, stream=stream, algorithm=self._native, **named)

    def _executor(self, executor) -> Executor:
        if executor is None:
            raise _errors.invalid(f"{self!r} without an executor: expected one, for plans are prepared in it")
        return executor

    def execute(self, comm: Communicator, input_buffer: int, output_buffer: int, input_size: int, output_size: int, dtype: int, op: int | None = None,
                stream: object = 0, executor: Executor | None = None, nblocks: int = 0, nthreads_per_block: int = 0, symmetric_memory: bool = False,
                extras: object = None, accum_dtype: object = None) -> int:
        """Perform it on memory that is given by addresses and sizes in bytes, as MSCCL++ has it; return 0, or raise.

        The number of blocks and of threads belongs to a plan or to the library, and so does the type in which sums are kept: expected 0 and None.
        """
        for name, value in (("nblocks", nblocks), ("nthreads_per_block", nthreads_per_block), ("extras", extras), ("accum_dtype", accum_dtype)):
            if value:
                raise _errors.make(2, f"algorithm {self.name}: {name} {value!r}: expected {0 if isinstance(value, int) else None}")
        comm = getattr(comm, "communicator", comm)
        code, pointer, op = _types.data_type(dtype), _streams.pointer(stream), _types.ReduceOp.SUM if op is None else op
        if self._plan is not None:
            self._executor(executor)._execute(self._plan, input_buffer, input_size, output_buffer, output_size, code, pointer, op, PacketType.LL16, False)
            return 0
        from ._buffers import Buffer
        device = None if comm.device == "host" else comm._index
        width = _types.SIZES[code]
        send, recv = (Buffer(a, n, width, code, device, False, None, _types.DataType(code).name)
                      for a, n in ((input_buffer, input_size), (output_buffer, output_size)))
        self.run(comm, send, recv, op=op, stream=(pointer or None) if device is not None else None)
        return 0

    def reset(self) -> None:
        """Do nothing: what a plan needs is its executor's, whose reset() ends it."""

    def __repr__(self) -> str:
        return f"<mscclpp.Algorithm {self.name!r} for {self._collective}>"


class Request:
    """The call for which a selector chooses an algorithm.

    Attributes:
        collective: its name.
        message_size: of the input, in bytes.
        dtype: the DataType, None for elements that have none.
        op: the ReduceOp, None where the program has not said it.
        world_size, n_ranks_per_node, rank: of the communicator; n_ranks_per_node is 0 where the program has not said it.
        input_buffer, output_buffer: addresses; 0 in calls of a communicator's own methods.
        stream: as the call has it.
        hints: what the program has given.
    """

    def __init__(self, collective: str, message_size: int, *, dtype: int | None = None, world_size: int = 0, n_ranks_per_node: int = 0, rank: int = 0,
                 input_buffer: int = 0, output_buffer: int = 0, stream: object = None, hints: Mapping[str, object] | None = None,
                 op: int | None = None, in_place: bool | None = None) -> None:
        self.op, self._in_place = op, input_buffer == output_buffer if in_place is None else in_place
        self.collective, self.message_size, self.dtype, self.world_size, self.n_ranks_per_node = collective, message_size, dtype, world_size, n_ranks_per_node
        self.rank, self.input_buffer, self.output_buffer, self.stream, self.hints = rank, input_buffer, output_buffer, stream, dict(hints or {})

    def buffer_mode(self) -> str:
        """Return in_place where input and output are one buffer, else out_of_place."""
        return "in_place" if self._in_place else "out_of_place"


class AlgorithmCollection:
    """Algorithms, and how to choose one for a call."""

    def __init__(self) -> None:
        self._all: list[Algorithm] = []
        self._by_collective: dict[str, dict[str, Algorithm]] = {}
        self._selectors: list = []

    def register_algorithm(self, collective: str, name: str, algorithm: Algorithm) -> None:
        """Add an algorithm; one that has the name for the collective already is replaced."""
        known = self._by_collective.setdefault(collective, {})
        if name in known:
            self._all.remove(known[name])
        known[name] = algorithm
        self._all.append(algorithm)

    def get_by_collective(self, collective: str) -> list[Algorithm]:
        """Return those for a collective."""
        return list(self._by_collective.get(collective, {}).values())

    def select(self, request: Request) -> Algorithm | None:
        """Return what the selectors choose for a call: the first one's answer, else the second's.

        Without selectors it is the first plan that serves the call; among its own algorithms the library chooses better.
        """
        for selector in self._selectors:
            chosen = selector({c: dict(names) for c, names in self._by_collective.items()}, request)
            if chosen is not None:
                return chosen
        if self._selectors:
            return None
        return next((a for a in self.get_by_collective(request.collective)
                     if a.is_dsl_algorithm() and a.message_size_range[0] <= request.message_size <= a.message_size_range[1]
                     and a.constraint.world_size in (0, request.world_size) and a._plan._takes(request)), None)

    def attach(self, comm: Communicator, *, packet_type: int = PacketType.LL16, unverified: bool = False) -> None:
        """Let the methods of a communicator, and so its torch backend or other users, choose as this collection does. Collective.

        The plans for its number of ranks are registered, in their order, and select() becomes the communicator's selector. What
        is added to the collection later is not registered. The arguments are those of Communicator.register_plan.
        """
        comm = getattr(comm, "communicator", comm)
        registered: dict[str, ExecutionPlan] = {}
        for algorithm in self._all:
            plan = algorithm._plan
            if plan is not None and plan.ranks == comm.size and registered.get(plan.name) is not plan:
                comm.register_plan(plan, packet_type=packet_type, unverified=unverified)
                registered[plan.name] = plan
        comm.register_selector(self.select)

    def run(self, comm: Communicator, collective: str, send: object, recv: object = None, *, op: int | None = None, stream: object = None,
            executor: Executor | None = None, hints: Mapping[str, object] | None = None) -> None:
        """Perform a collective on arrays by the algorithm that is chosen for it, or as the library would where none is.

        All ranks must choose the same one: a selector should decide by what they have in common.
        """
        from ._buffers import resolve
        if collective not in _METHODS:
            raise _errors.invalid(f"collective {collective}: expected one of {', '.join(_METHODS)}")
        comm = getattr(comm, "communicator", comm)
        a = resolve(send, f"{collective}: send", stream)
        b = a if recv is None else resolve(recv, f"{collective}: recv", stream)
        chosen = self.select(Request(collective, a.bytes, dtype=a.code, world_size=comm.size, rank=comm.rank, input_buffer=a.address, output_buffer=b.address,
                                     stream=stream, hints=hints, op=op))
        if chosen is not None:
            chosen.run(comm, send, recv, op=op, stream=stream, executor=executor)
            return
        named = {"op": op} if op is not None and collective in _REDUCES else {}
        getattr(comm, _METHODS[collective])(send, recv, stream=stream, **named)

    def __iter__(self) -> Iterator[Algorithm]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, i: int) -> Algorithm:
        return self._all[i]


class AlgorithmCollectionBuilder:
    """Collects algorithms and selectors. Each is an object of its own: nothing is shared by the process, as it is in MSCCL++."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._added: list[Algorithm] = []
        self._selector = self._fallback = None

    def add_algorithm_builder(self, algorithm: object) -> None:
        """Add an Algorithm, or an object whose build() returns one; ValueError for something else."""
        if not isinstance(algorithm, Algorithm):
            build = getattr(algorithm, "build", None)
            algorithm = build() if callable(build) else None
        if not isinstance(algorithm, Algorithm):
            raise ValueError("expected an Algorithm, or an object whose build() returns one")
        self._added.append(algorithm)

    def set_algorithm_selector(self, selector: Callable[[dict[str, dict[str, Algorithm]], Request], Algorithm | None]) -> None:
        """Set the function that chooses: selector(collective → name → algorithm, request)."""
        self._selector = selector

    def set_fallback_algorithm_selector(self, selector: Callable[[dict[str, dict[str, Algorithm]], Request], Algorithm | None]) -> None:
        """Set the function that chooses where the first one returns None."""
        self._fallback = selector

    def build(self) -> AlgorithmCollection:
        """Return the collection."""
        made = AlgorithmCollection()
        for algorithm in self._added:
            made.register_algorithm(algorithm.collective, algorithm.name, algorithm)
        made._selectors = [s for s in (self._selector, self._fallback) if s is not None]
        return made

    def build_default_algorithms(self, comm: Communicator) -> AlgorithmCollection:
        """Return the collection with the library's algorithms as well; they need no scratch buffer of the program."""
        made = self.build()
        for collective in _METHODS:
            for name in comm.query(f"algorithms.{collective}").split():
                made.register_algorithm(collective, name, Algorithm(collective=collective, native=name))
        return made


def compile(algo: Callable[..., object], algo_spec: AlgoSpec, rank: int | None = None, **kwargs: object) -> Algorithm:
    """Make an algorithm from a function in the plan language.

    The function is called each time, for that takes milliseconds; its plan's hash is the algorithm's id, so that another plan is another
    algorithm. Nothing is written to files.

    Args:
        algo: function(algo_spec, **kwargs), which returns a finished CollectiveProgram.
        algo_spec: of mscclpp.language.utils.
        rank: is not needed, for a plan has the operations of all ranks.
        kwargs: more arguments of the function.

    Raises:
        ValueError: algo is no function.
        InvalidUsage: the plan is wrong.
    """
    if not builtins.callable(algo):
        raise ValueError("algo: expected a function of a specification that returns a program")
    text = algo(algo_spec, **kwargs).to_json()
    canonical = json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    return Algorithm(hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest(), ExecutionPlan.from_json(text), algo_spec.tags,
                     Algorithm.Constraint(algo_spec.world_size, algo_spec.nranks_per_node))
