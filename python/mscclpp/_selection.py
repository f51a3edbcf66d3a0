"""Plans of a program as algorithms of a communicator, and the program's function that chooses among algorithms."""

from __future__ import annotations

import ctypes
import threading
from ctypes import POINTER, byref, cast

from . import _errors
from ._library import RegisterOptions, SelectorFunction, SelectorRequest

TYPE_CHECKING = False  # checkers of types take it for true
if TYPE_CHECKING:
    from collections.abc import Callable

    from ._algorithms import Algorithm, Request
    from ._plans import ExecutionPlan

_UNVERIFIED = 1
_MANY_INPUTS = ("reducescatter", "alltoall")  # their input has so many elements for each rank


class Selector:
    """A selector of the program as the library calls it. It keeps the names that it has returned, and what the program has raised."""

    def __init__(self, function: Callable[[Request], Algorithm | str | None], rank: int) -> None:
        self._function, self._rank = function, rank
        self._names: dict[str, ctypes.Array] = {}
        self._problems: dict[int, BaseException] = {}
        self.call = SelectorFunction(self._choose)

    def problem(self) -> BaseException | None:
        """Return what the selector has raised in the last call of this thread, once."""
        return self._problems.pop(threading.get_ident(), None) if self._problems else None

    def _choose(self, _, request) -> int | None:
        try:
            chosen = self._function(self._request(cast(request, POINTER(SelectorRequest)).contents))
            if chosen is None:
                return None
            name = chosen if isinstance(chosen, str) else chosen.name
        except BaseException as problem:  # the call raises it
            self._problems[threading.get_ident()] = problem
            name = f"(the selector has raised {type(problem).__name__})"
        kept = self._names.get(name)
        if kept is None:
            kept = self._names[name] = ctypes.create_string_buffer(name.encode())
        return ctypes.addressof(kept)

    def _request(self, r: SelectorRequest) -> Request:
        from . import _types
        from ._algorithms import Request
        collective = r.collective.decode()
        size = r.count * _types.SIZES[r.type] * (r.ranks if collective in _MANY_INPUTS else 1)
        return Request(collective, size, dtype=_types.DataType(r.type), op=_types.ReduceOp(r.op), world_size=r.ranks, rank=self._rank, in_place=bool(r.in_place))


class Selection:
    """The functions of a communicator by which a program brings algorithms, and chooses among them."""

    def register_plan(self, plan: ExecutionPlan, *, packet_type: int = 16, unverified: bool = False) -> None:
        """Make a plan an algorithm of the collectives, under its name: a selector chooses it, or ``algorithm=`` of a call. Collective.

        All ranks register the same plans in the same order. It stays until the communicator ends; what split() and shrink() make does not have it.

        Args:
            plan: for as many ranks as there are, and for allreduce, allgather, reducescatter or alltoall.
            packet_type: for plans of packets.
            unverified: whether it may be a plan that its check() does not call right.

        Raises:
            InvalidUsage: it is not right, or its name is taken.
            UnsupportedError: it is for other collectives, or another number of ranks.
        """
        self.rank
        options = RegisterOptions(ctypes.sizeof(RegisterOptions), _UNVERIFIED if unverified else 0, int(packet_type))
        self._check(self._lib.plan_register(self._handle, plan._handle, byref(options)))

    def register_selector(self, selector: Callable[[Request], Algorithm | str | None] | None) -> None:
        """Set the function that chooses the algorithm of each call that names none; None removes it.

        It returns a name, an Algorithm, or None to leave the choice to the library, and the same on all ranks. It must make no
        call of this communicator. What it raises is the cause of the call's error. A call takes some microseconds more.

        Args:
            selector: function(request). The request has collective, message_size (of the input, in bytes), dtype, op, world_size, rank
                and buffer_mode().
        """
        self.rank
        if selector is not None and not callable(selector):
            raise _errors.invalid(f"selector {selector!r}: expected a function of a request, or None")
        new = None if selector is None else Selector(selector, self.rank)
        self._check(self._lib.selector_register(self._handle, SelectorFunction(0) if new is None else new.call, None))
        self._selector = new  # the one before is not called any more
