"""The backend mscclpp of torch.distributed, for tensors on CPU.

    import mscclpp.torch

    torch.distributed.init_process_group("mscclpp")

All operations of torch.distributed but two are there (recv from any source, and sparse tensors), so that DDP, FSDP2 and DTensor run
over this package's transports. A call that is not asynchronous runs on the thread of the caller, others on a thread of the group;
messages have a communicator for each sender, receiver and tag, so that they wait for none but their own kind. A
group that fails, times out or is aborted stays so: later calls raise.
"""

from __future__ import annotations

import threading
import time
import weakref

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from . import _errors
from ._communicator import Communicator
from ._torch_work import LONGEST, Dense, Together, Work, Worker, seconds
from ._types import ReduceOp
from ._unique_id import UniqueId

SUPPORTED = ("2.11",)
"""The versions of torch whose interface for backends in Python this module knows."""

if ".".join(torch.__version__.split(".")[:2]) not in SUPPORTED:
    raise ImportError(f"mscclpp.torch: torch {torch.__version__}: expected {', '.join(v + '.x' for v in SUPPORTED)}")

__all__ = ["ProcessGroup", "SUPPORTED"]

_OPS = {
    dist.ReduceOp.SUM: ReduceOp.SUM, dist.ReduceOp.PRODUCT: ReduceOp.PROD, dist.ReduceOp.MIN: ReduceOp.MIN,
    dist.ReduceOp.MAX: ReduceOp.MAX, dist.ReduceOp.AVG: ReduceOp.AVG,
}
_BITS = {dist.ReduceOp.BAND: torch.bitwise_and, dist.ReduceOp.BOR: torch.bitwise_or, dist.ReduceOp.BXOR: torch.bitwise_xor}
_TYPES = frozenset({torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64,
                    torch.uint32, torch.uint64})
class ProcessGroup(dist.ProcessGroup):
    """A process group of torch.distributed over a Communicator; torch makes it.

    Attributes:
        communicator: the one for collectives. Calls on it must not be mixed with calls on the group that are under way.
    """

    def __init__(self, store, rank: int, size: int, timeout) -> None:
        super().__init__(rank, size)
        self._store, self._me, self._n = store, rank, size
        self._limit = seconds(timeout) or LONGEST
        self._ended = None  # why
        self._lock = threading.Lock()
        self._begun: dict[int, tuple[float, str]] = {}  # threads in a call, since when
        self._pairs: dict = {}
        self._batch = None
        self._name = self._description = ""
        self._stop = threading.Event()
        self._meetings = None  # the store of messages, once there was one
        self.communicator = self._meet(store, "collectives", rank, size)
        self._comms = [self.communicator]
        self._worker = None
        threading.Thread(target=_watch, args=(weakref.ref(self), self._stop), name="mscclpp-timeouts", daemon=True).start()

    def _meet(self, store, key: str, rank: int, size: int) -> Communicator:
        """Make a communicator with those that use the same key."""
        key = f"mscclpp/{key}"
        if rank == 0:
            own = UniqueId.create() if size > 1 else UniqueId.create("127.0.0.1")
            store.set(key, own.bytes)
        else:
            own = UniqueId(bytes(self._fetch(store, key)))
        return Communicator(own, rank, size, timeout=min(self._limit, 3600.0))

    def _fetch(self, store, key: str) -> bytes:
        """Return a value of the store once it is there.

        A get that waits would keep the store's connection from the threads that set what other ranks wait for, and no abort would end it.
        """
        until, pause = time.monotonic() + self._limit, 0.0002
        while not store.check([key]):
            if self._stop.wait(pause):
                self._guard()
            if time.monotonic() > until:
                raise self._overdue(None)
            pause = min(2 * pause, 0.02)
        return store.get(key)

    def _own_store(self):
        """Return a store that nobody else waits on."""
        with self._lock:
            if self._meetings is None:
                self._meetings = self._store.clone()
            return self._meetings

    # Answers to torch ------------------------------------------------------------------------------

    def rank(self) -> int:
        return self._me

    getRank = rank

    def size(self) -> int:
        return self._n

    getSize = size

    def name(self) -> str:
        return "mscclpp"

    getBackendName = _get_backend_name = name

    # torch keeps the name in backends in C++, of which there is none here.
    @property
    def group_name(self) -> str:
        return self._name

    def getGroupName(self) -> str:
        return self._name

    def _set_group_name(self, name: str) -> None:
        self._name = name

    setGroupName = _set_group_name

    @property
    def group_desc(self) -> str:
        return self._description

    def getGroupDesc(self) -> str:
        return self._description

    def _set_group_desc(self, text: str) -> None:
        self._description = text

    setGroupDesc = _set_group_desc

    @property
    def _device_types(self):
        return [torch.device("cpu")]

    def _get_backend(self, device):
        if torch.device(device).type != "cpu":
            raise RuntimeError(f"backend mscclpp has no communicator for {device}: expected cpu")
        return self

    supports_splitting = supports_coalescing = supports_time_estimate = supports_shrinking = supports_tensor_alloc = False

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return 0

    def get_group_store(self):
        return self._store

    def set_timeout(self, timeout) -> None:
        self._limit = seconds(timeout) or LONGEST

    _set_default_timeout = set_timeout

    def __repr__(self) -> str:
        return f"<mscclpp.torch.ProcessGroup {self.group_name!r}, rank {self._me} of {self._n}>"

    # How operations run ---------------------------------------------------------------------------

    def _guard(self) -> None:
        if self._ended is not None:
            raise _errors.make(5, f"process group {self.group_name or 'default'}: {self._ended}")

    def _timed(self, function, what: str):
        """Run a function within the time limit, after which the group is aborted."""
        self._guard()
        me = threading.get_ident()
        self._begun[me] = time.monotonic(), what
        try:
            return function()
        except _errors.Error as problem:
            ended = self._ended
            if ended is not None and "time limit" in ended:
                raise _errors.make(7, f"{what}: {ended}", problem.rank) from problem
            raise
        finally:
            self._begun.pop(me, None)

    def _do(self, what: str, function, results, asynchronous: bool) -> Work:
        """Run an operation here, or where the group's others are under way."""
        if self._batch is not None:
            self._batch.append((what, function, results))
            return Work(self, results, done=True)
        if not asynchronous and (self._worker is None or self._worker.idle):
            self._timed(function, what)
            return Work(self, results, done=True)
        self._guard()
        if self._worker is None:
            self._worker = Worker("mscclpp-collectives")
        work = Work(self, results)
        self._worker.put(lambda: self._timed(function, what), work)
        return work

    def _overdue(self, limit) -> _errors.Error:
        return _errors.make(7, f"process group {self.group_name or 'default'}: not done within the time limit of {limit or self._limit:g} s")

    def _expire(self, limit) -> None:
        self._end(f"not done within the time limit of {limit or self._limit:g} s")

    def _end(self, why: str) -> None:
        with self._lock:
            if self._ended is not None:
                return
            self._ended = why
            comms = list(self._comms)
        self._stop.set()
        for comm in comms:
            comm.abort(f"process group {self.group_name or 'default'}: {why}")

    def abort(self) -> None:
        """End all operations at once; those that are under way raise."""
        self._end("aborted")

    def shutdown(self) -> None:
        """Finish what was begun, then leave in order."""
        with self._lock:
            if self._ended is not None:
                return
            self._ended = "shut down"
            comms, workers = list(self._comms), [w for w in [self._worker, *(p[1] for p in self._pairs.values())] if w]
        self._stop.set()
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join(min(self._limit, 60.0))
        for comm in comms:
            comm.close()

    # Collectives ----------------------------------------------------------------------------------

    def allreduce(self, tensors, opts=c10d.AllreduceOptions()):
        tensor = _one(tensors, "all_reduce")
        return self._do("all_reduce", lambda: self._reduce_all(tensor, opts.reduceOp), [tensor], opts.asyncOp)

    def allreduce_coalesced(self, tensors, opts=c10d.AllreduceCoalescedOptions()):
        tensors = [_cpu(t, "all_reduce_coalesced") for t in tensors]

        def run():
            for tensor in tensors:
                self._reduce_all(tensor, opts.reduceOp)
        return self._do("all_reduce_coalesced", run, tensors, opts.asyncOp)

    def broadcast(self, tensors, opts=c10d.BroadcastOptions()):
        tensor = _one(tensors, "broadcast")

        def run():
            with Dense(tensor) as t:
                self.communicator.broadcast(t, root=opts.rootRank)
        return self._do("broadcast", run, [tensor], opts.asyncOp)

    def reduce(self, tensors, opts=c10d.ReduceOptions()):
        tensor = _one(tensors, "reduce")

        def run():
            if _native(tensor, opts.reduceOp):
                with Dense(tensor, write=self._me == opts.rootRank) as t:
                    self.communicator.reduce(t, op=_OPS[_kind(opts.reduceOp)], root=opts.rootRank)
            else:
                result = self._gathered(tensor, opts.reduceOp)
                if self._me == opts.rootRank:
                    tensor.copy_(result)
        return self._do("reduce", run, [tensor], getattr(opts, "asyncOp", False))

    def allgather(self, output_tensors, input_tensors, opts=c10d.AllgatherOptions()):
        source, outputs = _one(input_tensors, "all_gather"), [_cpu(t, "all_gather") for t in _only(output_tensors, "all_gather")]
        self._expect(outputs, "all_gather")

        def run():
            if any(o.numel() != source.numel() for o in outputs):
                raise _errors.invalid(f"all_gather: outputs of {[o.numel() for o in outputs]} elements: expected {source.numel()} of each rank")
            whole = source.new_empty((self._n, *source.shape))
            self.communicator.all_gather(source.contiguous(), whole)
            for out, part in zip(outputs, whole):
                out.copy_(part.view(out.shape))
        return self._do("all_gather", run, [outputs], opts.asyncOp)

    def allgather_coalesced(self, output_lists, input_list, opts=c10d.AllgatherOptions()):
        """Gather tensor i of all ranks in list i of each rank's lists, as torch has it: output_lists[rank][i]."""
        columns = [[row[i] for row in output_lists] for i in range(len(input_list))]
        works = [self.allgather([column], [source], opts) for column, source in zip(columns, input_list)]
        return Together(self, works, output_lists)

    def _allgather_base(self, output, input, opts=c10d.AllgatherOptions()):
        output, source = _cpu(output, "all_gather_into_tensor"), _cpu(input, "all_gather_into_tensor")

        def run():
            with Dense(output) as out:
                self.communicator.all_gather(source.contiguous(), out)
        return self._do("all_gather_into_tensor", run, [output], opts.asyncOp)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=c10d.AllgatherOptions()):
        return Together(self, [self._allgather_base(o, i, opts) for o, i in zip(outputs, inputs)], list(outputs))

    def reduce_scatter(self, output_tensors, input_tensors, opts=c10d.ReduceScatterOptions()):
        output, parts = _one(output_tensors, "reduce_scatter"), [_cpu(t, "reduce_scatter") for t in _only(input_tensors, "reduce_scatter")]
        self._expect(parts, "reduce_scatter")

        def run():
            self._scatter_sums(output, torch.cat([p.reshape(-1) for p in parts]), opts.reduceOp)
        return self._do("reduce_scatter", run, [output], opts.asyncOp)

    def _reduce_scatter_base(self, output, input, opts=c10d.ReduceScatterOptions()):
        output, source = _cpu(output, "reduce_scatter_tensor"), _cpu(input, "reduce_scatter_tensor")
        return self._do("reduce_scatter_tensor", lambda: self._scatter_sums(output, source, opts.reduceOp), [output], opts.asyncOp)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=c10d.ReduceScatterOptions()):
        return Together(self, [self._reduce_scatter_base(o, i, opts) for o, i in zip(outputs, inputs)], list(outputs))

    def gather(self, output_tensors, input_tensors, opts=c10d.GatherOptions()):
        source, root = _one(input_tensors, "gather"), opts.rootRank
        outputs = [_cpu(t, "gather") for t in _only(output_tensors, "gather")] if self._me == root else []
        if self._me == root:
            self._expect(outputs, "gather")

        def run():
            whole = source.new_empty((self._n, *source.shape)) if self._me == root else None
            self.communicator.gather(source.contiguous(), whole, root=root)
            for out, part in zip(outputs, whole if whole is not None else ()):
                out.copy_(part.view(out.shape))
        return self._do("gather", run, [outputs], opts.asyncOp)

    def scatter(self, output_tensors, input_tensors, opts=c10d.ScatterOptions()):
        output, root = _one(output_tensors, "scatter"), opts.rootRank
        parts = [_cpu(t, "scatter") for t in _only(input_tensors, "scatter")] if self._me == root else []
        if self._me == root:
            self._expect(parts, "scatter")

        def run():
            whole = torch.cat([p.reshape(-1) for p in parts]) if self._me == root else None
            with Dense(output) as out:
                self.communicator.scatter(whole, out, root=root)
        return self._do("scatter", run, [output], opts.asyncOp)

    def alltoall_base(self, output, input, output_split_sizes, input_split_sizes, opts=c10d.AllToAllOptions()):
        output, source = _cpu(output, "all_to_all_single"), _cpu(input, "all_to_all_single")

        def run():
            with Dense(output) as out:
                if not output_split_sizes and not input_split_sizes:
                    self.communicator.all_to_all(source.contiguous(), out)
                else:
                    self.communicator.all_to_all_v(source.contiguous(), self._splits(source, input_split_sizes),
                                                   out, self._splits(out, output_split_sizes))
        return self._do("all_to_all_single", run, [output], opts.asyncOp)

    def alltoall(self, output_tensors, input_tensors, opts=c10d.AllToAllOptions()):
        outputs, parts = ([_cpu(t, "all_to_all") for t in x] for x in (output_tensors, input_tensors))
        self._expect(outputs, "all_to_all")
        self._expect(parts, "all_to_all")

        def run():
            flat = torch.cat([p.reshape(-1) for p in parts])
            out = flat.new_empty(sum(o.numel() for o in outputs))
            self.communicator.all_to_all_v(flat, [p.numel() for p in parts], out, [o.numel() for o in outputs])
            for o, part in zip(outputs, out.split([o.numel() for o in outputs])):
                o.copy_(part.view(o.shape))
        return self._do("all_to_all", run, outputs, opts.asyncOp)

    def barrier(self, opts=c10d.BarrierOptions()):
        return self._do("barrier", self.communicator.barrier, [], getattr(opts, "asyncOp", False))

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        work = self._do("monitored_barrier", self.communicator.barrier, [], True)
        work.wait(timeout)

    # Messages -------------------------------------------------------------------------------------

    def send(self, tensors, dst: int, tag: int = 0):
        source = _one(tensors, "send")
        return self._message("send", self._me, dst, tag, lambda comm: comm.send(source.contiguous(), 1), [source])

    def recv(self, tensors, src: int, tag: int = 0):
        target = _one(tensors, "recv")

        def run(comm):
            with Dense(target) as t:
                comm.recv(t, 0)
        return self._message("recv", src, self._me, tag, run, [target])

    def recv_anysource(self, tensors, tag: int = 0):
        raise _errors.make(2, "recv from any source: expected the rank that sends")

    def _message(self, what: str, src: int, dst: int, tag: int, run, results) -> Work:
        self._guard()
        if src == dst:
            raise _errors.invalid(f"{what}: rank {src} and itself: expected another rank")
        with self._lock:
            pair = self._pairs.get((src, dst, tag))
            if pair is None:
                pair = self._pairs[src, dst, tag] = [None, Worker(f"mscclpp-{src}-to-{dst}")]

        def perform():
            if pair[0] is None:
                comm = self._meet(self._own_store(), f"{src}-{dst}-{tag}", 0 if self._me == src else 1, 2)
                with self._lock:
                    if self._ended is None or self._ended == "shut down":
                        pair[0] = comm
                        self._comms.append(comm)
                if pair[0] is None:
                    comm.abort("the process group has ended")
                    self._guard()
            run(pair[0])
        work = Work(self, results)
        pair[1].put(lambda: self._timed(perform, what), work)
        return work

    # Coalescing -----------------------------------------------------------------------------------

    def _start_coalescing(self, device) -> None:
        self._get_backend(device)
        self._batch = []

    def _end_coalescing(self, device):
        batch, self._batch = self._batch, None

        def run():
            for _, function, _ in batch:
                function()
        return self._do("coalesced operations", run, [r for _, _, results in batch for r in results], True)

    # Parts of operations --------------------------------------------------------------------------

    def _expect(self, tensors, what: str) -> None:
        if len(tensors) != self._n:
            raise _errors.invalid(f"{what}: a list of {len(tensors)} tensors: expected {self._n}")

    def _splits(self, tensor, sizes):
        """Return counts of elements for sizes along the first dimension; without sizes all are equal."""
        rows = tensor.shape[0] if tensor.dim() else 1
        row = tensor.numel() // rows if rows else 0
        if not sizes:
            if rows % self._n:
                raise _errors.invalid(f"all_to_all_single: {rows} rows for {self._n} ranks: expected a multiple, or sizes")
            sizes = [rows // self._n] * self._n
        if sum(sizes) != rows:
            raise _errors.invalid(f"all_to_all_single: sizes with the sum {sum(sizes)}: expected {rows}, the rows of the tensor")
        return [s * row for s in sizes]

    def _reduce_all(self, tensor, op) -> None:
        if _native(tensor, op):
            with Dense(tensor) as t:
                self.communicator.all_reduce(t, op=_OPS[_kind(op)])
        else:
            tensor.copy_(self._gathered(tensor, op))

    def _scatter_sums(self, output, source, op) -> None:
        if _native(source, op):
            with Dense(output) as out:
                self.communicator.reduce_scatter(source.contiguous(), out, op=_OPS[_kind(op)])
        else:
            part = self._gathered(source, op).reshape(-1).view(self._n, -1)[self._me]
            output.copy_(part.view(output.shape))

    def _gathered(self, tensor, op):
        """Return a reduction that the library does not have: of complex numbers, booleans, 16 bits, and of bits."""
        kind = _kind(op)
        every = tensor.new_empty((self._n, *tensor.shape))
        self.communicator.all_gather(tensor.contiguous(), every)
        if kind in _BITS:
            function = _BITS[kind]
        elif kind == dist.ReduceOp.SUM:
            function = torch.logical_or if tensor.dtype is torch.bool else torch.add
        elif kind == dist.ReduceOp.PRODUCT:
            function = torch.logical_and if tensor.dtype is torch.bool else torch.mul
        elif kind == dist.ReduceOp.MIN:
            function = torch.minimum
        elif kind == dist.ReduceOp.MAX:
            function = torch.maximum
        else:
            raise _errors.make(2, f"reduction {op} of {tensor.dtype}: expected another operation or type")
        result = every[0]
        for other in every[1:]:
            result = function(result, other)
        return result


def _kind(op):
    """Return the kind of a reduction of torch, which may carry a factor as well."""
    return getattr(op, "op", op)


def _native(tensor, op) -> bool:
    kind = _kind(op)
    return tensor.dtype in _TYPES and kind in _OPS and (kind != dist.ReduceOp.AVG or tensor.dtype.is_floating_point)


def _cpu(tensor, what: str):
    if tensor.device.type != "cpu":
        raise _errors.invalid(f"{what}: a tensor on {tensor.device}: expected one on cpu; for GPUs use the backend nccl under mscclpp-run --nccl")
    if tensor.layout is not torch.strided:
        raise _errors.make(2, f"{what}: a tensor of layout {tensor.layout}: expected a dense one")
    return tensor.detach()


def _only(lists, what: str):
    if len(lists) != 1:
        raise _errors.invalid(f"{what}: {len(lists)} lists of tensors: expected 1")
    return lists[0]


def _one(tensors, what: str):
    return _cpu(_only(tensors, what), what)


def _watch(group_of, stop: threading.Event) -> None:
    """Abort a group in which a call takes longer than its time limit."""
    while True:
        group = group_of()
        if group is None:
            return
        now, wait = time.monotonic(), min(max(group._limit / 10, 0.02), 1.0)
        for begun, _ in list(group._begun.values()):
            if now - begun > group._limit:
                group._expire(None)
                return
        del group
        if stop.wait(wait):
            return


def _create(options, _) -> ProcessGroup:
    """Make a group for torch.distributed.init_process_group and new_group."""
    return ProcessGroup(options.store, options.group_rank, options.group_size, options.timeout)


if "mscclpp" not in dist.Backend.backend_list:
    dist.Backend.register_backend("mscclpp", _create, extended_api=True, devices=["cpu"])
