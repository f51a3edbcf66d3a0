"""A proxy drains one ring on a thread of its own: it copies, signals and flushes."""

import threading

from boundary import CLOSED, INVALID, Failure
from ring import DATA, FLUSH, FLUSH_WORDS, SIGNAL, Ring, trigger

MEMORIES = 512  # the numbers that nine bits of a trigger can cite
NAP = 0.002


class Proxy:
    def __init__(self):
        self.lock = threading.Lock()  # of bindings and of start and stop
        self.sources, self.targets, self.semaphores = {}, {}, {}
        self.mapped = []
        self.ring = None
        self.stopping = False
        self.ended = threading.Event()
        self.cause = None  # a Failure, once it has ended by itself

    def bind_memory(self, slot, memory, own):
        with self.lock:
            if slot >= MEMORIES or slot in self.sources or slot in self.targets:
                raise Failure(INVALID, "memory slot %d: want a free one below %d" % (slot, MEMORIES))
            (self.sources if own else self.targets)[slot] = memory
            self.mapped.append(memory)

    def bind_semaphore(self, slot, memory, offset):
        with self.lock:
            if slot >= FLUSH_WORDS or slot in self.semaphores:
                raise Failure(INVALID, "semaphore slot %d: want a free one below %d" % (slot, FLUSH_WORDS))
            if offset % 8 or not memory.aligned or offset + 8 > len(memory.bytes):
                raise Failure(INVALID, "a word at %d of %d bytes" % (offset, len(memory.bytes)))
            self.semaphores[slot] = memory.bytes[offset : offset + 8].cast("Q")
            self.mapped.append(memory)

    def start(self, fd):
        with self.lock:
            if self.ring or self.stopping:
                raise Failure(INVALID, "the proxy was started or stopped before")
            self.ring = Ring(fd)
        threading.Thread(target=self._drain, daemon=True).start()

    def stop(self, timeout):
        """Performs what was pushed before, and ends. False if time ran out."""
        with self.lock:
            self.stopping = True
            if self.ring is None and not self.ended.is_set():
                self._release()
                self.ended.set()
        return self.ended.wait(timeout)

    def _drain(self):
        try:
            while self._step():
                pass
        except Failure as failure:
            self.cause = failure
        except Exception as other:  # a mistake of ours must not leave a kernel waiting
            self.cause = Failure(CLOSED, repr(other))
        self.ring.fail(self.cause.klass if self.cause else CLOSED)
        with self.lock:
            self._release()
        self.ended.set()

    def _step(self):
        found = self.ring.poll()
        if found is None:
            if self.stopping:
                return False
            self.ring.park(NAP)
            return True
        self._perform(*found)
        self.ring.pop()
        return True

    def _perform(self, fst, snd):
        """Data, then signal, then flush. The copy is visible when it is done, so that a
        flush has nothing to wait for."""
        size, src_at, dst_at, src, dst, kind, slot = trigger(fst, snd)
        word = self.semaphores.get(slot)
        if kind == 0 or word is None:
            raise Failure(INVALID, "a trigger of type %d cites semaphore %d, which is not bound" % (kind, slot))
        if kind & DATA:
            source, target = self.sources.get(src), self.targets.get(dst)
            if source is None or target is None:
                raise Failure(INVALID, "a put from memory %d to memory %d: not bound as own and as the peer's" % (src, dst))
            if src_at + size > len(source.bytes) or dst_at + size > len(target.bytes):
                raise Failure(INVALID, "a put of %d bytes from %d of %d to %d of %d" % (
                    size, src_at, len(source.bytes), dst_at, len(target.bytes)))
            target.bytes[dst_at : dst_at + size] = source.bytes[src_at : src_at + size]
        if kind & SIGNAL:
            word[0] = word[0] + 1 & 0xFFFFFFFFFFFFFFFF  # this proxy is the only writer
        if kind & FLUSH:
            self.ring.complete(slot)

    def _release(self):
        for word in self.semaphores.values():
            word.release()
        for memory in self.mapped:
            memory.close()
        self.sources, self.targets, self.semaphores, self.mapped = {}, {}, {}, []
        if self.ring:
            self.ring.close()
