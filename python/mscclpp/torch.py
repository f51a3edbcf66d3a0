"""The backend mscclpp of torch.distributed, for tensors on CPU and on GPUs.

    import mscclpp.torch

    torch.distributed.init_process_group("mscclpp")

All operations of torch.distributed but two are there (recv from any source, and sparse tensors), so that DDP, FSDP2 and DTensor run
over this package's transports. On CPU a call that is not asynchronous runs on the thread of the caller, others on a thread of the group;
messages have a communicator for each sender, receiver and tag, so that they wait for none but their own kind. On a GPU calls are put on
streams, as with the backend nccl. A group that fails, times out or is aborted stays so: later calls raise.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import warnings
import weakref

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from . import _errors
from ._communicator import Communicator
from ._torch_cuda import Lane, Line
from ._torch_moves import Moves, native
from ._torch_work import LONGEST, Together, Work, Worker, seconds
from ._unique_id import UniqueId

TYPE_CHECKING = False  # checkers of types take it for true
if TYPE_CHECKING:
    import datetime

SUPPORTED = ("2.11",)
"""The versions of torch whose interface for backends in Python this module knows."""

if ".".join(torch.__version__.split(".")[:2]) not in SUPPORTED:
    raise ImportError(f"mscclpp.torch: torch {torch.__version__}: expected {', '.join(v + '.x' for v in SUPPORTED)}")

__all__ = ["ProcessGroup", "SUPPORTED"]


class ProcessGroup(dist.ProcessGroup):
    """A process group of torch.distributed over a Communicator; torch makes it.

    Attributes:
        communicator: the one for collectives. Calls on it must not be mixed with calls on the group that are under way.
    """

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: datetime.timedelta | float | None, device: torch.device | None = None) -> None:
        super().__init__(rank, size)
        self._store, self._me, self._n = store, rank, size
        self._limit = seconds(timeout) or LONGEST
        self._ended = None  # why
        self._lock = threading.Lock()
        self._begun: dict[int, tuple[float, str]] = {}  # threads in a call, since when
        self._pairs: dict = {}
        self._batch = self._block = None  # operations of an open block, and a reference to it
        self._name = self._description = ""
        self._stop = threading.Event()
        self._meetings = None  # the store of messages, once there was one
        self._device = device
        self._lanes: dict = {}
        self._lanes_lock = threading.Lock()
        self._comms: list[Communicator] = []  # which end with the group, also those that wait for ranks to join
        self.communicator = self._meet(store, "collectives", rank, size)
        self._host = Moves(self.communicator)
        self._worker = None
        threading.Thread(target=_watch, args=(weakref.ref(self), self._stop), name="mscclpp-timeouts", daemon=True).start()

    def _meet(self, store, key: str, rank: int, size: int, device: str = "host") -> Communicator:
        """Make a communicator with those that use the same key."""
        key = f"mscclpp/{key}"
        if rank == 0:
            own = UniqueId.create() if size > 1 else UniqueId.create("127.0.0.1")
            store.set(key, own.bytes)
        else:
            own = UniqueId(bytes(self._fetch(store, key)))
        comm = self._kept(Communicator(own, rank, size, device=device, timeout=min(self._limit, 3600.0), join=False))
        try:
            comm.join()
        except BaseException:
            comm.close()
            raise
        return comm

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

    def _kept(self, comm: Communicator) -> Communicator:
        """Note a communicator that ends with the group, which may have ended meanwhile."""
        with self._lock:
            if self._ended is None or self._ended == "shut down":
                self._comms.append(comm)
                return comm
        comm.abort("the process group has ended")
        self._guard()
        raise AssertionError

    def _lane(self, device) -> Lane:
        """Return what is used for a GPU: made at the first call, which all ranks make."""
        with self._lanes_lock:
            lane = self._lanes.get((device.index, "collectives"))
            if lane is None:
                lane = self._lanes[device.index, "collectives"] = Lane(self, device, self._moves(device, "collectives", self._me, self._n))
            return lane

    def _moves(self, device, key: str, rank: int, size: int) -> Moves:
        """Meet with those that use the same key, for a GPU."""
        return Moves(self._meet(self._own_store(), f"cuda-{key}", rank, size, f"cuda:{device.index}"))

    # Answers to torch ------------------------------------------------------------------------------

    def rank(self) -> int:
        """Return the number of this rank in the group."""
        return self._me

    getRank = rank

    def size(self) -> int:
        """Return how many ranks the group has."""
        return self._n

    getSize = size

    def name(self) -> str:
        """Return the name of the backend."""
        return "mscclpp"

    getBackendName = _get_backend_name = name

    # torch keeps the name in backends in C++, of which there is none here.
    @property
    def group_name(self) -> str:
        return self._name

    def getGroupName(self) -> str:
        """Return the group's name."""
        return self._name

    def _set_group_name(self, name: str) -> None:
        """Note the group's name, which torch gives."""
        self._name = name

    setGroupName = _set_group_name

    @property
    def group_desc(self) -> str:
        return self._description

    def getGroupDesc(self) -> str:
        """Return the group's description."""
        return self._description

    def _set_group_desc(self, text: str) -> None:
        """Note the group's description."""
        self._description = text

    setGroupDesc = _set_group_desc

    @property
    def _device_types(self):
        return [torch.device("cpu"), torch.device("cuda")]

    def _get_backend(self, device):
        if torch.device(device).type not in ("cpu", "cuda"):
            raise RuntimeError(f"backend mscclpp has no communicator for {device}: expected cpu or cuda")
        return self

    @property
    def bound_device_id(self) -> torch.device | None:
        """The GPU that the group was made for; None for any."""
        return self._device

    supports_splitting = supports_coalescing = supports_time_estimate = supports_shrinking = supports_tensor_alloc = False

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return 0

    def get_group_store(self) -> dist.Store:
        return self._store

    def set_timeout(self, timeout: datetime.timedelta | float | None) -> None:
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

    def _do(self, what: str, function, results, asynchronous: bool, tensor=None, others=(), plain: bool = False):
        """Perform function(moves): on the host here, or where the group's others are under way; on a GPU on a stream. plain: as Lane.do has it."""
        gpu = tensor is not None and tensor.is_cuda
        if self._batch is not None and self._coalescing():
            return self._later(what, function, results, tensor if gpu else None)
        if gpu:
            lane = self._lanes.get((tensor.device.index, "collectives")) or self._lane(tensor.device)
            work = self._timed(lambda: lane.do(what, function, results, asynchronous, (tensor, results, others), plain), what)
            return Work(self, results, done=True) if work is None else work
        if not asynchronous and (self._worker is None or self._worker.idle):
            self._timed(lambda: function(self._host), what)
            return Work(self, results, done=True)
        self._guard()
        if self._worker is None:
            self._worker = Worker("mscclpp-collectives")
        work = Work(self, results)
        self._worker.put(lambda: self._timed(lambda: function(self._host), what), work)
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
            lines = [lane.worker for lane in self._lanes.values() if isinstance(lane, Line)]
            comms, workers = list(self._comms), [w for w in [self._worker, *(p[1] for p in self._pairs.values()), *lines] if w]
        self._stop.set()
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join(min(self._limit, 60.0))
        for comm in comms:
            comm.close()

    # Collectives ----------------------------------------------------------------------------------

    def allreduce(self, tensors: list[torch.Tensor], opts: c10d.AllreduceOptions = c10d.AllreduceOptions()) -> dist.Work:
        tensor, op = _one(tensors, "all_reduce"), opts.reduceOp
        return self._do("all_reduce", lambda on: on.all_reduce(tensor, op), [tensor], opts.asyncOp, tensor,
                        plain=tensor.is_cuda and tensor.is_contiguous() and native(tensor, op))

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: c10d.AllreduceCoalescedOptions = c10d.AllreduceCoalescedOptions()) -> dist.Work:
        tensors, op = [_dense(t, "all_reduce_coalesced") for t in tensors], opts.reduceOp

        def run(on):
            for tensor in tensors:
                on.all_reduce(tensor, op)
        return self._do("all_reduce_coalesced", run, tensors, opts.asyncOp, tensors[0] if tensors else None)

    def broadcast(self, tensors: list[torch.Tensor], opts: c10d.BroadcastOptions = c10d.BroadcastOptions()) -> dist.Work:
        tensor, root = _one(tensors, "broadcast"), opts.rootRank
        return self._do("broadcast", lambda on: on.broadcast(tensor, root), [tensor], opts.asyncOp, tensor, plain=tensor.is_contiguous())

    def reduce(self, tensors: list[torch.Tensor], opts: c10d.ReduceOptions = c10d.ReduceOptions()) -> dist.Work:
        tensor, op, root = _one(tensors, "reduce"), opts.reduceOp, opts.rootRank
        return self._do("reduce", lambda on: on.reduce(tensor, op, root), [tensor], getattr(opts, "asyncOp", False), tensor)

    def allgather(self, output_tensors: list[list[torch.Tensor]], input_tensors: list[torch.Tensor], opts: c10d.AllgatherOptions = c10d.AllgatherOptions()) -> dist.Work:
        source, outputs = _one(input_tensors, "all_gather"), self._list(_only(output_tensors, "all_gather"), "all_gather")
        return self._do("all_gather", lambda on: on.all_gather(outputs, source), [outputs], opts.asyncOp, source)

    def allgather_coalesced(self, output_lists: list[list[torch.Tensor]], input_list: list[torch.Tensor], opts: c10d.AllgatherOptions = c10d.AllgatherOptions()) -> dist.Work:
        """Gather tensor i of all ranks in list i of each rank's lists, as torch has it: output_lists[rank][i]."""
        columns = [[row[i] for row in output_lists] for i in range(len(input_list))]
        works = [self.allgather([column], [source], opts) for column, source in zip(columns, input_list)]
        return Together(self, works, output_lists)

    def _allgather_base(self, output, input, opts=c10d.AllgatherOptions()):
        output, source = _dense(output, "all_gather_into_tensor"), _dense(input, "all_gather_into_tensor")
        return self._do("all_gather_into_tensor", lambda on: on.all_gather(output, source), [output], opts.asyncOp, output, source,
                        plain=output.is_cuda and output.is_contiguous() and source.is_contiguous())

    def allgather_into_tensor_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: c10d.AllgatherOptions = c10d.AllgatherOptions()) -> dist.Work:
        return Together(self, [self._allgather_base(o, i, opts) for o, i in zip(outputs, inputs)], list(outputs))

    def reduce_scatter(self, output_tensors: list[torch.Tensor], input_tensors: list[list[torch.Tensor]], opts: c10d.ReduceScatterOptions = c10d.ReduceScatterOptions()) -> dist.Work:
        output, op = _one(output_tensors, "reduce_scatter"), opts.reduceOp
        parts = self._list(_only(input_tensors, "reduce_scatter"), "reduce_scatter")
        return self._do("reduce_scatter", lambda on: on.reduce_scatter(output, parts, op), [output], opts.asyncOp, output, parts)

    def _reduce_scatter_base(self, output, input, opts=c10d.ReduceScatterOptions()):
        output, source, op = _dense(output, "reduce_scatter_tensor"), _dense(input, "reduce_scatter_tensor"), opts.reduceOp
        return self._do("reduce_scatter_tensor", lambda on: on.reduce_scatter(output, source, op), [output], opts.asyncOp, output, source,
                        plain=output.is_cuda and output.is_contiguous() and source.is_contiguous() and native(source, op))

    def reduce_scatter_tensor_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: c10d.ReduceScatterOptions = c10d.ReduceScatterOptions()) -> dist.Work:
        return Together(self, [self._reduce_scatter_base(o, i, opts) for o, i in zip(outputs, inputs)], list(outputs))

    def gather(self, output_tensors: list[list[torch.Tensor]], input_tensors: list[torch.Tensor], opts: c10d.GatherOptions = c10d.GatherOptions()) -> dist.Work:
        source, root = _one(input_tensors, "gather"), opts.rootRank
        outputs = self._list(_only(output_tensors, "gather"), "gather") if self._me == root else []
        return self._do("gather", lambda on: on.gather(outputs, source, root), [outputs], opts.asyncOp, source)

    def scatter(self, output_tensors: list[torch.Tensor], input_tensors: list[list[torch.Tensor]], opts: c10d.ScatterOptions = c10d.ScatterOptions()) -> dist.Work:
        output, root = _one(output_tensors, "scatter"), opts.rootRank
        parts = self._list(_only(input_tensors, "scatter"), "scatter") if self._me == root else []
        return self._do("scatter", lambda on: on.scatter(output, parts, root), [output], opts.asyncOp, output, parts)

    def alltoall_base(self, output: torch.Tensor, input: torch.Tensor, output_split_sizes: list[int], input_split_sizes: list[int],
                      opts: c10d.AllToAllOptions = c10d.AllToAllOptions()) -> dist.Work:
        output, source = _dense(output, "all_to_all_single"), _dense(input, "all_to_all_single")
        return self._do("all_to_all_single", lambda on: on.all_to_all_single(output, source, output_split_sizes, input_split_sizes),
                        [output], opts.asyncOp, output, source)

    def alltoall(self, output_tensors: list[torch.Tensor], input_tensors: list[torch.Tensor], opts: c10d.AllToAllOptions = c10d.AllToAllOptions()) -> dist.Work:
        outputs, parts = self._list(output_tensors, "all_to_all"), self._list(input_tensors, "all_to_all")
        return self._do("all_to_all", lambda on: on.all_to_all(outputs, parts), outputs, opts.asyncOp, outputs[0], parts)

    def barrier(self, opts: c10d.BarrierOptions = c10d.BarrierOptions()) -> dist.Work:
        """Wait until all ranks are here, and what is on the current streams of the GPUs in use is done."""
        for lane in list(self._lanes.values()):
            lane.finish()
        return self._do("barrier", lambda on: on.barrier(), [], getattr(opts, "asyncOp", False))

    def monitored_barrier(self, timeout: datetime.timedelta | float | None = None, wait_all_ranks: bool = False) -> None:
        work = self._do("monitored_barrier", lambda on: on.barrier(), [], True)
        work.wait(timeout)

    # Messages -------------------------------------------------------------------------------------

    def send(self, tensors: list[torch.Tensor], dst: int, tag: int = 0) -> dist.Work:
        source = _one(tensors, "send")
        return self._message("send", self._me, dst, tag, lambda on, peer: on.send(source, peer), source)

    def recv(self, tensors: list[torch.Tensor], src: int, tag: int = 0) -> dist.Work:
        target = _one(tensors, "recv")
        return self._message("recv", src, self._me, tag, lambda on, peer: on.recv(target, peer), target)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> dist.Work:
        raise _errors.make(2, "recv from any source: expected the rank that sends")

    def _message(self, what: str, src: int, dst: int, tag: int, run, tensor):
        self._guard()
        if src == dst:
            raise _errors.invalid(f"{what}: rank {src} and itself: expected another rank")
        if tensor.device.type == "cuda":
            return self._message_of_gpu(what, src, dst, run, tensor)
        with self._lock:
            pair = self._pairs.get((src, dst, tag))
            if pair is None:
                pair = self._pairs[src, dst, tag] = [None, Worker(f"mscclpp-{src}-to-{dst}")]

        def perform():
            if pair[0] is None:
                pair[0] = Moves(self._meet(self._own_store(), f"{src}-{dst}-{tag}", 0 if self._me == src else 1, 2))
            run(pair[0], 1 if self._me == src else 0)
        work = Work(self, [tensor])
        pair[1].put(lambda: self._timed(perform, what), work)
        return work

    def _message_of_gpu(self, what: str, src: int, dst: int, run, tensor):
        """A message between GPUs: over a communicator of the two ranks, or over that of all in a batch. Tags are not told apart."""
        if self._batch is not None and self._coalescing():
            return self._later(what, lambda on: run(on, dst if self._me == src else src), [tensor], tensor)
        me, device, key = 0 if self._me == src else 1, tensor.device, f"{src}-{dst}"
        with self._lock:
            line = self._lanes.get((device.index, key))
            if line is None:
                line = self._lanes[device.index, key] = Line(self, device, lambda: self._moves(device, key, me, 2), f"mscclpp-cuda-{src}-to-{dst}")
        return line.message(what, lambda on: run(on, 1 - me), [tensor], tensor)

    # Coalescing -----------------------------------------------------------------------------------

    def _start_coalescing(self, device) -> None:
        self._get_backend(device)
        if self._batch is not None and self._coalescing():
            raise _errors.invalid("coalesced operations: a block within one: expected the end of the first")
        batch, block, of = [], _block_of_caller(), weakref.ref(self)
        if block is not None:
            dist.distributed_c10d._world.pg_coalesce_state.setdefault(self, [])  # torch's list of this block may have gone with one that was left
        self._batch = batch
        self._block = None if block is None else weakref.ref(block, lambda _: (group := of()) is not None and group._left(batch))

    def _coalescing(self) -> bool:
        """Report whether a block is open."""
        block = self._block and self._block()
        if block is not None and block.gi_frame is None:
            self._left(self._batch)
        return self._batch is not None

    def _later(self, what: str, function, results, tensor):
        """Note an operation of a block, which begins at its end. Torch waits for it at once."""
        work = Work(self, results, done=True)
        self._batch.append((what, function, results, tensor, work))
        return work

    def _left(self, batch) -> None:
        """Drop the operations of a block that has ended without a call of _end_coalescing: an exception left it, which torch tells no backend."""
        if batch is None or self._batch is not batch:
            return
        self._batch = self._block = None
        dist.distributed_c10d._world.pg_coalesce_state.pop(self, None)  # by which torch would keep later calls for itself
        for what, _, _, _, work in batch:
            work._problem = _errors.make(9, f"{what}: an exception left the block of coalesced operations before they began")

    def _end_coalescing(self, device):
        batch, self._batch, self._block = self._batch, None, None
        if batch is None:
            raise _errors.invalid("coalesced operations: the end of a block that was not begun")
        gpu = next((tensor for _, _, _, tensor, _ in batch if tensor is not None), None)

        def run(on):
            messages = all(what in ("send", "recv") for what, *_ in batch)
            with on.communicator.group() if batch and messages else contextlib.nullcontext():
                for _, function, *_ in batch:
                    function(on)
        results = [r for _, _, results, _, _ in batch for r in results]
        return self._do("coalesced operations", run, results, True, gpu, batch)

    def _list(self, tensors, what: str):
        tensors = [_dense(t, what) for t in tensors]
        if len(tensors) != self._n:
            raise _errors.invalid(f"{what}: a list of {len(tensors)} tensors: expected {self._n}")
        return tensors


def _block_of_caller():
    """Return the generator behind torch's with statement that calls the caller of this; None if another one does."""
    frame = sys._getframe(2)
    manager = frame.f_back and frame.f_back.f_locals.get("self")  # of contextlib, which runs the generator
    block = getattr(manager, "gen", None)
    return block if getattr(block, "gi_frame", None) is frame else None


def _dense(tensor, what: str):
    if not tensor.is_cuda and not tensor.is_cpu:
        raise _errors.invalid(f"{what}: a tensor on {tensor.device}: expected one on cpu or cuda")
    if tensor.layout is not torch.strided:
        raise _errors.make(2, f"{what}: a tensor of layout {tensor.layout}: expected a dense one")
    return tensor.detach() if tensor.requires_grad else tensor


def _only(lists, what: str):
    if len(lists) != 1:
        raise _errors.invalid(f"{what}: {len(lists)} lists of tensors: expected 1")
    return lists[0]


def _one(tensors, what: str):
    return _dense(_only(tensors, what), what)


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
        if any(lane.overdue(group._limit) for lane in list(group._lanes.values())):
            group._expire(None)
            return
        del group
        if stop.wait(wait):
            return


def _look_beside(config) -> None:
    """Warn of backends that are asked for beside this one: torch gives a group that is written in Python tensors of all devices, and drops the others."""
    for device, name in config.get_device_backend_map().items():
        if name != "mscclpp":
            warnings.warn(f"process group {config}: mscclpp serves tensors of CPU and CUDA alike, and {name} for {device} is not used: expected mscclpp alone")
        elif device not in ("cpu", "cuda"):
            raise _errors.invalid(f"process group {config}: mscclpp for {device}: expected cpu or cuda")


def _create(options, _) -> ProcessGroup:
    """Make a group for torch.distributed.init_process_group and new_group."""
    config = sys._getframe(1).f_locals.get("backend_config")  # which torch gives no backend
    if config is not None:
        _look_beside(config)
    return ProcessGroup(options.store, options.group_rank, options.group_size, options.timeout)


if "mscclpp" not in dist.Backend.backend_list:
    dist.Backend.register_backend("mscclpp", _create, extended_api=True, devices=["cpu", "cuda"])
