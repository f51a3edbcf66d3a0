"""The trigger ring, and memory that other processes map at the same time.

The layout is that of docs/plugin-protocol.md, section "The ring". CPython stores and
loads an aligned word of a memoryview of format "Q" or "I" by one instruction, and x86-64
makes stores visible in their order: that is all the ordering that the ring asks for, but
for the one place that is marked below.
"""

import ctypes
import fcntl
import mmap
import os
import struct

from boundary import INVALID, PEER, Failure

F_GET_SEALS, F_SEAL_SHRINK = 1034, 2
MAGIC, VERSION, MOST_SLOTS = 0x474E495250504D53, 1, 1 << 20
FLUSH_WORDS, TRIGGERS = 480, 4096
TAIL, ERROR, PARKED, HEAD_BYTES = 64, 128, 132, 256  # byte offsets in the header
COMMIT = 1 << 63
DATA, SIGNAL, FLUSH = 1, 2, 4

_libc = ctypes.CDLL(None, use_errno=True)
_SYS_FUTEX, _FUTEX_WAIT, _FUTEX_WAKE = 202, 0, 1


class _Timespec(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]


class Memory:
    """A range of a memfd, mapped until close(). klass is the class of the error for a bad one."""

    def __init__(self, fd, offset, size, klass):
        check(fd, offset, size, klass)
        start = offset - offset % mmap.PAGESIZE
        self._map = mmap.mmap(fd, offset - start + size, offset=start)
        self._all = memoryview(self._map)
        self.bytes = self._all[offset - start :]
        self.aligned = offset % 8 == 0

    def close(self):
        self.bytes.release()
        self._all.release()
        self._map.close()


def check(fd, offset, size, klass):
    """Refuses a range that is not there, or that its owner could take away: a load from
    there would kill this process."""
    try:
        seals = fcntl.fcntl(fd, F_GET_SEALS)
    except OSError:
        raise Failure(klass, "the descriptor is no memfd")
    if not seals & F_SEAL_SHRINK:
        raise Failure(klass, "the memfd is not sealed against shrinking")
    have = os.fstat(fd).st_size
    if size == 0 or size > have or offset > have - size:
        raise Failure(klass, "%d bytes at %d of a memfd of %d" % (size, offset, have))


class Ring:
    """The consumer's end of a ring."""

    def __init__(self, fd):
        head = Memory(fd, 0, TRIGGERS, INVALID)
        magic, version, slots = struct.unpack_from("<QII", head.bytes)  # once: the host may be writing
        head.close()
        if magic != MAGIC or version != VERSION:
            raise Failure(INVALID, "magic %#x, version %d: no ring of version %d" % (magic, version, VERSION))
        if slots == 0 or slots > MOST_SLOTS or slots & (slots - 1):
            raise Failure(INVALID, "a ring of %d slots" % slots)
        self.memory = Memory(fd, 0, TRIGGERS + 16 * slots, INVALID)
        self.slots = slots
        self.words = self.memory.bytes.cast("Q")
        self.halves = self.memory.bytes.cast("I")
        self.tail = self.words[TAIL // 8]
        parked = ctypes.c_uint32.from_buffer(self.memory._map, PARKED)
        self._parked = ctypes.addressof(parked)
        del parked  # or the mapping could not be closed

    def poll(self):
        """The oldest trigger that was not popped, without its commit bit; None if there is
        none. The commit bit is 1 in even laps of the ring and 0 in odd ones."""
        at = TRIGGERS // 8 + 2 * (self.tail % self.slots)
        snd = self.words[at + 1]  # the second word first: its bit says that both are there
        if bool(snd & COMMIT) != (self.tail // self.slots % 2 == 0):
            return None
        return self.words[at], snd & ~COMMIT

    def pop(self):
        self.tail += 1
        self.words[TAIL // 8] = self.tail

    def complete(self, slot):
        """Says in a flush word that everything up to the current trigger is done."""
        self.words[HEAD_BYTES // 8 + slot] = self.tail + 1

    def fail(self, code):
        """Ends the ring. The first reason is kept."""
        if self.halves[ERROR // 4] == 0:
            self.halves[ERROR // 4] = code
        self.wake()

    def park(self, seconds):
        """Sleeps until a producer of the host pushes, or wake() is called, or the time is
        over. Kernels of a GPU cannot wake the proxy, so the time is short."""
        self.halves[PARKED // 4] = 1
        # A full fence belongs here, which Python does not have: the load in poll() may
        # come before the store. A producer that misses it costs one nap and no more.
        if self.poll() is None and self.halves[ERROR // 4] == 0:
            nap = _Timespec(0, int(seconds * 1e9))
            _libc.syscall(_SYS_FUTEX, ctypes.c_void_p(self._parked), _FUTEX_WAIT, 1, ctypes.byref(nap), None, 0)
        self.halves[PARKED // 4] = 0

    def wake(self):
        self.halves[PARKED // 4] = 0
        _libc.syscall(_SYS_FUTEX, ctypes.c_void_p(self._parked), _FUTEX_WAKE, 0x7FFFFFFF, None, None, 0)

    def close(self):
        self.words.release()
        self.halves.release()
        self.memory.close()


def trigger(fst, snd):
    """Takes a trigger apart: size, source offset, destination offset, source memory,
    destination memory, type, semaphore."""
    low = 0xFFFFFFFF
    return fst & low, fst >> 32, snd & low, snd >> 32 & 0x1FF, snd >> 41 & 0x1FF, snd >> 50 & 7, snd >> 53 & 0x3FF


__all__ = ["DATA", "FLUSH", "FLUSH_WORDS", "INVALID", "Memory", "PEER", "Ring", "SIGNAL", "check", "trigger"]
