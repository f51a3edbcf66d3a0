"""Memory, windows, channels and proxies of a communicator."""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from ctypes import byref, c_size_t, c_uint64, c_void_p

from . import _errors
from ._buffers import Buffer, resolve
from ._library import ProxyFunction

TYPE_CHECKING = False  # checkers of types take it for true
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from ._communicator import Communicator

    _Self = TypeVar("_Self")

__all__ = ["DeviceHandle", "RegisteredMemory", "Window", "MemoryChannel", "PortChannel", "SwitchChannel", "Proxy"]


def nanoseconds(seconds: float | None) -> int:
    """Return a time limit as the library takes it: 0 for None, which is no limit, and else at least one nanosecond."""
    if seconds is None:
        return 0
    if not seconds > 0:
        raise _errors.invalid(f"a time limit of {seconds!r} seconds: expected more than 0, or None for no limit")
    return max(1, round(seconds * 1e9)) if seconds < 9e9 else 2**63 - 1


class DeviceHandle:
    """What a kernel takes by value: ``raw`` is the structure of mscclpp/layout.h, as bytes. It ends with its channel."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    def __bytes__(self) -> bytes:
        return self.raw


class _Object:
    """An object of the library that belongs to a communicator, and ends with it."""

    _free = ""

    def __init__(self, comm: Communicator, handle: int) -> None:
        self._comm, self._handle = comm, handle
        comm._parts.append(self)

    def _ended(self) -> None:
        """Note that the communicator ends, and this with it."""
        self._handle = None

    def _call(self, name: str, *arguments) -> None:
        if self._handle is None:
            raise _errors.make(5, f"{type(self).__name__} was closed, or its communicator was")
        self._comm._check(getattr(self._comm._lib, name)(self._handle, *arguments))

    def close(self) -> None:
        """End it before its communicator. Closing again does nothing."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self._comm._parts.remove(self)
            self._comm._check(getattr(self._comm._lib, self._free)(handle))

    def __reduce__(self) -> tuple:
        raise TypeError(f"{type(self).__name__} is neither copied nor pickled: it belongs to its communicator")

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *problem: object) -> None:
        _errors.ended(self.close, problem)

    def __repr__(self) -> str:
        return f"<mscclpp.{type(self).__name__}{', closed' if self._handle is None else ''}>"

    def _bytes(self, name: str, room: int) -> bytes:
        """Return what a function writes that is given room and says how much it needs."""
        size = c_size_t(room)
        raw = ctypes.create_string_buffer(room)
        self._call(name, raw, byref(size))
        return raw.raw[:size.value]


class _Lasting:
    """What keeps memory of a GPU."""


def _release(of, lib, device: tuple[int, int], kept: int) -> None:
    """Give up what a _lasting kept. If that ends the memory of a GPU, what others have put on streams is done first."""
    memory = of()
    if device[0] == 2 and (memory is None or memory._handle is None):
        from ._driver import driver
        with contextlib.suppress(_errors.Error):  # in a forked child, or while a stream is captured
            driver().finish(device[1])
    lib.memory_release(kept)


class RegisteredMemory(_Object):
    """Memory that other ranks can be given access to: Communicator.alloc and Communicator.register make it.

    It may be used as a buffer of collectives, and by what knows ``__array_interface__`` (on the host) or
    ``__cuda_array_interface__`` as a vector of bytes: ``numpy.asarray(memory).view("float32")``. What was allocated is freed by
    close() or with the communicator. Views, arrays and capsules keep what they show beyond that; on a GPU an array by ``__cuda_array_interface__`` does so by
    this object, which it refers to.
    """

    _free = "memory_free"

    def __init__(self, comm: Communicator, handle: int, keep: object = None) -> None:
        super().__init__(comm, handle)
        self._keep, self._seen, self._shown = keep, None, None
        address, size = c_void_p(), c_size_t()
        self._call("memory_range", byref(address), byref(size))
        self._address, self._size = address.value or 0, size.value

    def data(self) -> int:
        """Return its address."""
        self._open()
        return self._address

    def size(self) -> int:
        """Return its size in bytes."""
        return self._size

    def _open(self) -> None:
        if self._handle is None:
            raise _errors.make(5, "memory was closed, or its communicator was")

    def __mscclpp_buffer__(self) -> Buffer:
        self._open()
        device = self._comm.device
        return Buffer(self._address, self._size, 1, 5, None if device == "host" else int(device.rpartition(":")[2]), False, self, "uint8")

    def _lasting(self):
        """Return an object that keeps the memory where it is for as long as somebody has it, also when it was closed. On the host it has these bytes."""
        self._open()
        lasting = self._seen and self._seen()
        if lasting is None:
            lasting = (ctypes.c_ubyte * self._size).from_address(self._address) if self._comm.device == "host" else _Lasting()
            if self._keep is None:
                kept = c_void_p()
                self._call("memory_keep", byref(kept))
                weakref.finalize(lasting, _release, weakref.ref(self), self._comm._lib, self.__dlpack_device__(), kept.value).atexit = False
            else:
                lasting.keep = self._keep
            self._seen = weakref.ref(lasting)
        return lasting

    @property
    def __array_interface__(self) -> dict:
        if self._comm.device != "host":
            raise AttributeError("__array_interface__")
        return {"shape": (self._size,), "typestr": "|u1", "data": self.view(), "version": 3}

    @property
    def __cuda_array_interface__(self) -> dict:
        if self._comm.device == "host":
            raise AttributeError("__cuda_array_interface__")
        self._shown = self._lasting()
        return {"shape": (self._size,), "typestr": "|u1", "data": (self._address, False), "version": 3}

    def __dlpack_device__(self) -> tuple[int, int]:
        device = self._comm.device
        return (1, 0) if device == "host" else (2, int(device.rpartition(":")[2]))

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """Return its bytes as a capsule of DLPack. What is under way on other streams than the given one is the program's concern."""
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("memory of mscclpp is given as it is: expected no copy, and its own device")
        return self.to_dlpack()

    def to_dlpack(self, data_type: object = "uint8", shape: Sequence[int] | None = None, strides: Sequence[int] | None = None) -> object:
        """Return a capsule of DLPack, which keeps the memory: elements of a type, such as ``torch.float16``, in a shape.

        Args:
            data_type: a type's name.
            shape, strides: in elements; None for one dimension of all that there is, in C order.
        """
        return self._capsule(self, data_type, shape, strides)

    def _capsule(self, keep, data_type, shape, strides):
        from ._dlpack import capsule
        kind, number = self.__dlpack_device__()
        return capsule(self._address, self._size, None if kind == 1 else number, (keep, self._lasting()), data_type, shape, strides)

    def read(self, size: int | None = None, offset: int = 0) -> bytes:
        """Return so many bytes from an offset on, or all behind it; on a GPU when its default stream has done what is on it."""
        size = self._size - offset if size is None else size
        self._within(size, offset)
        if self._comm.device == "host":
            return ctypes.string_at(self._address + offset, size)
        from ._driver import driver
        return driver().read(self.__dlpack_device__()[1], self._address + offset, size)

    def write(self, data: object, offset: int = 0) -> None:
        """Copy a buffer of the host to an offset; on a GPU when its default stream has done what is on it."""
        source = resolve(data, "write")
        if source.device is not None:
            raise _errors.invalid(f"write: {source.type} is memory of a GPU: expected the host's")
        self._within(source.bytes, offset)
        if self._comm.device == "host":
            ctypes.memmove(self._address + offset, source.address, source.bytes)
        else:
            from ._driver import driver
            driver().write(self.__dlpack_device__()[1], self._address + offset, source.address, source.bytes)

    def _within(self, size: int, offset: int) -> None:
        self._open()
        if size < 0 or offset < 0 or offset + size > self._size:
            raise _errors.invalid(f"{size} bytes at {offset}: expected them within the {self._size} of the memory")

    def view(self) -> memoryview:
        """Return the bytes as a memoryview, on the host. It may be used for as long as it is there, also when the memory was closed."""
        self._open()
        if self._comm.device != "host":
            raise _errors.invalid(f"view of memory of {self._comm.device}: expected the host")
        return memoryview(self._lasting()).cast("B")


class Window(_Object):
    """The memory of all ranks: Communicator.window and Communicator.arrange make it.

    Collectives use buffers inside in place, of arrange() up to the size of the smallest memory. It keeps the memory of this rank, and ends
    with its close(), with that of the memory, or with the communicator; addresses are not to be used then. All ranks should be through with
    what reaches a peer, after a barrier(), before one of them ends it.
    """

    _free = "window_free"

    def peer(self, rank: int) -> tuple[int, int]:
        """Return the address at which kernels of this rank reach the memory of a rank, and its size in bytes."""
        address, size = c_void_p(), c_size_t()
        self._call("window_peer", _errors.whole(rank, "window peer: rank"), byref(address), byref(size))
        return address.value or 0, size.value

    def flat(self) -> tuple[int, int]:
        """Return where kernels of this rank find the memory of rank 0, and by how many bytes that of each rank is behind the one before.

        The second number is a multiple of 4 GiB. A rank's own memory is there, too, beside where peer() says that it is.

        Raises:
            InvalidUsage: the window is one of Communicator.window, in which memory lies anywhere.
        """
        base, stride = c_void_p(), c_size_t()
        self._call("window_flat", byref(base), byref(stride))
        return base.value or 0, stride.value

    def channels(self) -> list[DeviceHandle]:
        """Make a memory channel to every rank, and return their handles in the order of ranks; that of this rank is 0. Collective."""
        raw = self._bytes("window_channels", 64 * self._comm.size)
        return [DeviceHandle(raw[i:i + 64]) for i in range(0, len(raw), 64)]


class _Channel(_Object):
    _free = "channel_free"

    def device_handle(self) -> DeviceHandle:
        """Return the handle for kernels."""
        return DeviceHandle(self._bytes("channel_handle", 256))


class MemoryChannel(_Channel):
    """A channel by which kernels store into a peer's memory: Communicator.memory_channel makes it."""


class SwitchChannel(_Channel):
    """A channel in which one store reaches all ranks: Communicator.switch_channel makes it."""


class PortChannel(_Channel):
    """A channel whose proxy moves what kernels or the host ask for: Communicator.port_channel makes it. Offsets and sizes are in bytes."""

    def put(self, target_offset: int, source_offset: int, size: int) -> None:
        """Copy from the source to the peer's target; it returns when the request is queued."""
        self._call("port_put", *self._range(target_offset, source_offset, size))

    def put_with_signal(self, target_offset: int, source_offset: int, size: int) -> None:
        """Do put() and signal()."""
        self._call("port_put_signal", *self._range(target_offset, source_offset, size))

    def _range(self, target_offset, source_offset, size):
        return _errors.size(target_offset, "put: target_offset"), _errors.size(source_offset, "put: source_offset"), _errors.size(size, "put: size")

    def signal(self) -> None:
        """Let the peer's wait() return once all earlier puts are seen there."""
        self._call("port_signal")

    def flush(self, timeout: float | None = None) -> None:
        """Wait until the sources of all earlier puts may be reused, at most timeout seconds."""
        self._call("port_flush", nanoseconds(timeout))

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the next signal of the peer, at most timeout seconds; TimeoutError if there was none."""
        self._call("port_wait", nanoseconds(timeout))


class Proxy(_Object):
    """A thread that calls a function for every trigger pushed into its ring: Communicator.proxy makes it, on the host."""

    _free = "proxy_free"

    def __init__(self, comm: Communicator, slots: int, handler: Callable[[Proxy, int, int, int], object]) -> None:
        self._problem = None

        def call(_, first, second, position):
            try:
                return 1 if handler(self, first, second, position) else 0
            except BaseException as problem:  # close() raises it
                self._problem = problem
                return -1
        self._function = ProxyFunction(call)
        out = c_void_p()
        comm._check(comm._lib.proxy_create(comm._handle, _errors.whole(slots, "proxy: slots", 0), self._function, None, byref(out)))
        super().__init__(comm, out.value)

    def push(self, first: int, second: int = 0) -> int:
        """Push a trigger of 64 and 63 bits, and return its position; it waits while the ring is full."""
        if not (0 <= first < 1 << 64 and 0 <= second < 1 << 63):
            raise _errors.invalid(f"trigger {first}, {second}: expected numbers of 64 and 63 bits")
        position = c_uint64()
        self._call("proxy_push", first, second, byref(position))
        return position.value

    def complete(self, position: int) -> None:
        """Say that everything up to a position is done. The handler may call it, and nothing else of this package."""
        self._call("proxy_complete", position)

    def flush(self, position: int, timeout: float | None = None) -> None:
        """Wait until complete() was called for a position, at most timeout seconds."""
        self._call("proxy_flush", position, nanoseconds(timeout))

    def device_handle(self) -> DeviceHandle:
        """Return the mscclpp::FifoHandle by which kernels push."""
        return DeviceHandle(self._bytes("proxy_handle", 256))

    def close(self) -> None:
        """Perform the triggers that were pushed, and end the thread; raise what the handler has raised."""
        if self._handle is None:
            return
        handle = self._handle
        self._comm._parts.remove(self)
        try:  # the handler may call complete until it has ended
            self._comm._check(self._comm._lib.proxy_free(handle))
        except _errors.Error as problem:
            raise problem from self._problem
        finally:
            self._handle = None


def _handle(memory, what: str) -> int:
    """Return the handle of memory that a function was given."""
    if not isinstance(memory, RegisteredMemory):
        raise _errors.invalid(f"{what}: {type(memory).__name__}: expected memory of alloc() or register()")
    memory._open()  # for one that has ended would be none
    return memory._handle


class Objects:
    """The functions of a communicator that make objects; each belongs to it, and ends with it or by its close()."""

    def _make(self, name: str, *arguments) -> int:
        self.rank  # it was joined
        out = c_void_p()
        self._check(getattr(self._lib, name)(self._handle, *arguments, byref(out)))
        return out.value

    def alloc(self, size: int) -> RegisteredMemory:
        """Return so many bytes of zeroed memory of the device that other ranks can be given access to."""
        return RegisteredMemory(self, self._make("memory_alloc", _errors.size(size, "alloc: size")))

    def register(self, array: object) -> RegisteredMemory:
        """Make the memory of an array usable where RegisteredMemory is asked for; it is kept until that ends.

        On a GPU it must lie within one allocation of the driver. On the host it may be any memory, which other processes cannot map.
        """
        buffer = resolve(array, "register")
        self._place(buffer, "register")
        if buffer.readonly:
            raise _errors.invalid(f"register: {buffer.type} is read-only: expected memory that can be written to")
        return RegisteredMemory(self, self._make("memory_register", buffer.address, buffer.bytes), buffer)

    def window(self, memory: RegisteredMemory) -> Window:
        """Make the memory of all ranks addressable for all: every rank gives one; sizes may differ. Collective.

        Raises:
            UnsupportedError: not all ranks share memory.
        """
        return Window(self, self._make("window_create", _handle(memory, "window")))

    def arrange(self, memory: RegisteredMemory | None, *, private: bool = False) -> Window:
        """Make a window in which the memory of all ranks is side by side, so that kernels find that of rank r at base + r * stride. Collective.

        This is for GPUs that map each other's memory, and for memory of alloc(), or registered memory of the program that the driver has made
        with handles that can be exported, at offsets that are alike on all ranks.

        Args:
            memory: this rank's; None if it has none, and all ranks are to learn that.
            private: whether collectives do not use the window in place; the same on all ranks.

        Raises:
            UnsupportedError: a rank cannot take part, on all ranks; the text says which, and why. The communicator works on.
        """
        return Window(self, self._make("window_arrange", None if memory is None else _handle(memory, "arrange"), 1 if private else 0))

    def memory_channel(self, peer: int, memory: RegisteredMemory) -> MemoryChannel:
        """Make a memory channel to a peer, which does the same; each gives the memory that it opens to the other."""
        return MemoryChannel(self, self._make("memory_channel", _errors.whole(peer, "memory_channel: peer"), _handle(memory, "memory_channel")))

    def port_channel(self, peer: int, source: RegisteredMemory, target: RegisteredMemory) -> PortChannel:
        """Make a port channel to a peer, which does the same. puts read source; the peer's puts write target, made by alloc()."""
        return PortChannel(self, self._make("port_channel", _errors.whole(peer, "port_channel: peer"), _handle(source, "port_channel"), _handle(target, "port_channel")))

    def switch_channel(self, memory: RegisteredMemory) -> SwitchChannel:
        """Make a switch channel over memory of one size of all ranks; its last 128 bytes belong to the channel. Collective."""
        return SwitchChannel(self, self._make("switch_channel", _handle(memory, "switch_channel")))

    def proxy(self, slots: int, handler: Callable[[Proxy, int, int, int], object]) -> Proxy:
        """Make a proxy with a ring of so many triggers, a power of two.

        Args:
            handler: function(proxy, first, second, position), called for one trigger after the other on a thread of its own. It returns
                True to end the proxy in good order. After an exception later pushes fail, and close() raises.
        """
        self.rank
        if not callable(handler):
            raise _errors.invalid(f"proxy: handler {handler!r}: expected a function of proxy, first, second and position")
        return Proxy(self, slots, handler)

    def control(self) -> int:
        """Return the address, for kernels, of the mscclpp::WaitControl that every wait of a kernel takes."""
        return self._make("comm_control")
