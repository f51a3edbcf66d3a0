"""Process groups in which something goes wrong; the argument says what."""

import datetime
import gc
import os
import sys
import threading
import time

import torch
import torch.distributed as dist

import mscclpp

scene, rank = sys.argv[1], int(os.environ.get("RANK", "0"))
LIMIT = datetime.timedelta(minutes=5)  # of what takes seconds


def noticed(function, kind, *texts):
    """A call that is to fail, and whose error is to have these texts."""
    try:
        function()
    except kind as problem:
        missing = [t for t in texts if t not in str(problem)]
        if missing:
            sys.exit(f"{scene}: {problem}: expected {missing}")
        return problem
    sys.exit(f"{scene}: nothing was raised: expected {kind.__name__}")


def begin():
    """Join, and return what the ranks meet by where the group has failed."""
    import mscclpp.torch
    dist.init_process_group("mscclpp", timeout=LIMIT)
    dist.barrier()
    store = dist.group.WORLD.get_group_store()
    meet(store, "begun")  # a barrier that has ended here may not have ended there
    return store


def meet(store, name):
    store.set(f"{name} {rank}", "")
    store.wait([f"{name} {r}" for r in range(2)], LIMIT)
    if rank == 1:
        store.set(f"{name} seen", "")
    else:  # which has the store: it may end once the other has got its answer
        store.wait([f"{name} seen"], LIMIT)


def late():
    """Rank 1 does not take part: the call of rank 0 ends with TimeoutError after the group's limit."""
    store = begin()
    group = dist.new_group(timeout=LIMIT)
    group.barrier().wait()
    meet(store, "joined")
    group.set_timeout(datetime.timedelta(seconds=0.3))
    if rank == 0:
        noticed(lambda: dist.all_reduce(torch.ones(1), group=group), TimeoutError, "all_reduce", "time limit of 0.3 s")
        noticed(lambda: dist.all_reduce(torch.ones(1), group=group), mscclpp.ClosedError, "time limit")
    meet(store, "late")
    dist.all_reduce(torch.ones(1))  # the other group works


def late_work():
    """The same for an asynchronous call that is waited for."""
    store = begin()
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        noticed(lambda: work.wait(datetime.timedelta(seconds=0.3)), mscclpp.Error, "time limit of 0.3 s")
        assert work.is_completed() and not work.is_success() and work.exception() is not None
        noticed(lambda: work.get_future().wait(), Exception, "time limit")
    meet(store, "late")


def aborted():
    """An abort ends what is under way: a collective, and messages that wait for the other rank to meet."""
    store = begin()
    if rank == 0:
        works = [dist.all_reduce(torch.ones(1), async_op=True), dist.irecv(torch.ones(1), 1), dist.isend(torch.ones(1), 1)]
        store.wait(["mscclpp/0-1-0"], LIMIT)  # it joins
        dist.group.WORLD.abort()
        for work in works:
            noticed(work.wait, mscclpp.Error, "aborted")
        noticed(lambda: dist.all_reduce(torch.ones(1)), mscclpp.ClosedError, "aborted")
    meet(store, "aborted")
    if rank == 1:
        noticed(lambda: dist.all_reduce(torch.ones(1)), mscclpp.PeerError, "rank 0", "aborted")


def raises():
    """Rank 1 ends with an exception: rank 0 gets its text."""
    if rank == 1:
        begin()
        raise ValueError("a defect of the program")

    def wait():
        begin()  # it may still be there when the other has ended
        dist.all_reduce(torch.ones(1))
    noticed(wait, mscclpp.PeerError, "rank 1", "ValueError: a defect")


def bad_input():
    """Tensors that cannot be right are refused at once, and the group works on."""
    store = begin()
    meta, sparse, two = torch.ones(2, device="meta"), torch.eye(2).to_sparse(), torch.ones(2)
    for call, kind, text in (
            (lambda: dist.all_reduce(meta), Exception, "meta"),
            (lambda: dist.group.WORLD.broadcast([sparse], torch._C._distributed_c10d.BroadcastOptions()), mscclpp.UnsupportedError, "sparse"),
            (lambda: dist.group.WORLD.allreduce([two, two], torch._C._distributed_c10d.AllreduceOptions()), mscclpp.InvalidUsage, "expected 1"),
            (lambda: dist.all_gather_into_tensor(torch.ones(5), two), mscclpp.InvalidUsage, "recv 20"),
            (lambda: dist.all_gather_into_tensor(torch.ones(4, dtype=torch.float64), two), Exception, "type"),
            (lambda: dist.reduce_scatter_tensor(torch.ones(2), torch.ones(3)), mscclpp.InvalidUsage, ""),
            (lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3)), mscclpp.InvalidUsage, "multiple"),
            (lambda: dist.all_to_all_single(torch.ones(2), two, [1, 1], [1, 5]), Exception, ""),
            (lambda: dist.group.WORLD.send([two], rank, 0), mscclpp.InvalidUsage, "itself"),
            (lambda: dist.recv(two), mscclpp.UnsupportedError, "any source"),
            (lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.AVG), mscclpp.UnsupportedError, "int32"),
            (lambda: dist.group.WORLD._get_backend("mps"), RuntimeError, "expected cpu or cuda")):
        noticed(call, kind, text)
    leaf = torch.ones(2, requires_grad=True)
    dist.all_reduce(leaf)  # gradients are none of its business
    with torch.inference_mode():
        fixed = torch.ones(3)
    dist.all_reduce(fixed)
    assert (leaf == 2).all() and (fixed == 2).all(), (leaf, fixed)
    meet(store, "bad input")


def left_block():
    """An exception that leaves a block of coalesced operations drops them, and later ones are performed: begun ones were none."""
    store, cpu, works = begin(), torch.device("cpu"), []

    def leave(kept):
        with dist._coalescing_manager(device=cpu, async_ops=True):
            dist.all_reduce(kept)  # torch keeps it until the end
            works.append(dist.broadcast(kept, 0, async_op=True))
            works.append(dist.isend(torch.full((2,), float(rank)), 1 - rank))  # begins at once
            raise KeyError("of the program")
    for _ in range(2):
        kept = torch.full((3,), float(rank))
        try:
            leave(kept)
        except KeyError:
            dist.broadcast(one := torch.full((3,), float(rank)), 1)  # while the exception is there
            dist.all_reduce(two := torch.ones(3))
        assert (kept == rank).all() and (one == 1).all() and (two == 2).all(), (kept, one, two)
        dropped, message = works
        works.clear()
        assert dropped.is_completed() and not dropped.is_success()
        noticed(dropped.wait, mscclpp.FailedError, "broadcast", "an exception left the block")
        dist.recv(got := torch.zeros(2), 1 - rank)
        message.wait()
        assert (got == 1 - rank).all(), got
        with dist._coalescing_manager(device=cpu):
            dist.broadcast(one.fill_(rank), 0)
            dist.broadcast(two.fill_(rank), 1)
        assert (one == 0).all() and (two == 1).all(), (one, two)
        manager = dist._coalescing_manager(device=cpu)  # which outlives its block
        try:
            with manager:
                dist.broadcast(one.fill_(rank), 0)
                raise KeyError("of the program")
        except KeyError:
            pass
        with dist._coalescing_manager(device=cpu):
            dist.broadcast(two.fill_(rank), 0)
        assert (one == rank).all() and (two == 0).all(), (one, two)
    dist.group.WORLD._start_coalescing(cpu)
    noticed(lambda: dist.group.WORLD._start_coalescing(cpu), mscclpp.InvalidUsage, "a block within one")
    dist.group.WORLD._end_coalescing(cpu).wait()
    noticed(lambda: dist.group.WORLD._end_coalescing(cpu), mscclpp.InvalidUsage, "not begun")
    meet(store, "left block")


def mixed():
    """A group with another backend beside this one serves tensors of all devices, and says so; a device that it has not is refused."""
    import warnings
    store = begin()
    for backend, unused in (("cpu:mscclpp,cuda:mscclpp", None), ("cuda:mscclpp", None), ("cpu:gloo,cuda:mscclpp", "gloo for cpu"), ("cuda:mscclpp,cpu:gloo", "gloo for cpu"),
                            ("cpu:mscclpp,cuda:gloo", "gloo for cuda")):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            group = dist.new_group(backend=backend)
        texts = [str(w.message) for w in said if "mscclpp serves" in str(w.message)]
        assert len(texts) == (unused is not None) and all(f"{unused} is not used" in t for t in texts), (backend, texts)
        dist.all_reduce(x := torch.ones(3), group=group)
        dist.all_gather_object(every := [None] * 2, rank, group=group)
        assert (x == 2).all() and every == [0, 1] and isinstance(group, mscclpp.torch.ProcessGroup), (backend, x, every)
        dist.destroy_process_group(group)
    noticed(lambda: dist.new_group(backend="xpu:mscclpp"), mscclpp.InvalidUsage, "mscclpp for xpu: expected cpu or cuda")
    meet(store, "mixed")


def collected():
    """Tensors and works that the program has dropped are kept while they are needed."""
    begin()
    futures = []
    for i in range(50):
        work = dist.all_reduce(torch.full((10000,), float(i)), async_op=True)
        futures.append(work.get_future())
        del work
        if rank == 1 and i % 10 == 0:
            gc.collect()
            torch.zeros(10000)  # takes the place of what was freed
    for i, future in enumerate(futures):
        assert (future.wait()[0] == 2.0 * i).all(), i
    dist.isend(torch.full((100000,), 5.0), 1 - rank)
    gc.collect()
    dist.recv(got := torch.zeros(100000), 1 - rank)
    assert (got == 5).all(), got
    dist.barrier()


def callbacks():
    """An exception in a function of the program that a future calls is raised by its wait, and the group works on."""
    begin()

    def fails(future):
        raise ValueError("in a callback")
    work = dist.all_reduce(torch.ones(3), async_op=True)
    noticed(work.get_future().then(fails).wait, Exception, "in a callback")
    assert work.wait()
    dist.all_reduce(again := torch.ones(3))
    assert (again == 2).all(), again


def not_destroyed():
    """The interpreter ends without destroy_process_group, with a work that nobody waits for."""
    begin()
    dist.all_reduce(torch.ones(3), async_op=True)


def threads():
    """Threads call different groups at once, and one group by turns."""
    begin()
    groups = [dist.new_group(timeout=LIMIT) for _ in range(3)]
    problems = []

    def work(group, i):
        try:
            for k in range(50):
                dist.all_reduce(t := torch.full((100,), float(i + k)), group=group, async_op=False)
                assert (t == 2.0 * (i + k)).all(), t
        except BaseException as problem:
            problems.append(problem)
    all_of_them = [threading.Thread(target=work, args=pair) for pair in zip(groups, range(3))]
    for t in all_of_them:
        t.start()
    for t in all_of_them:
        t.join()
    assert not problems, problems


def forked():
    """A child says that it cannot use the group, and the parent goes on."""
    begin()
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(torch.ones(1))
        except mscclpp.Error:
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    dist.all_reduce(t := torch.ones(1))
    assert t == 2, t


def interrupted(asynchronous=False, first=False):
    """SIGINT in a call that waits for a rank, a thread here, is KeyboardInterrupt. One process."""
    import mscclpp.torch
    sys.setswitchinterval(1000)  # a thread runs only where another one lets it, so that what it sees of the main thread waits, or is a call of C
    store, groups = dist.HashStore(), []

    def join(me):
        groups.append(own := mscclpp.torch.ProcessGroup(store, me, 2, LIMIT))
        if not first:  # C makes later calls by itself
            own.allreduce([torch.ones(3)]).wait()
        return own
    second = threading.Thread(target=join, args=(1,))
    second.start()
    group = join(0)
    second.join()
    options = torch._C._distributed_c10d.AllreduceOptions()
    options.asyncOp = asynchronous
    begun = threading.Event()

    def waits():
        frame = sys._current_frames()[threading.main_thread().ident]
        return (frame.f_globals["__name__"], frame.f_code.co_name) in (("mscclpp._collectives", "_call"), ("mscclpp._collectives", "all_reduce"), ("threading", "wait"))

    def look():
        begun.wait()
        while not waits():
            time.sleep(0.005)
        print("waits", flush=True)
    threading.Thread(target=look).start()
    try:
        begun.set()
        group.allreduce([torch.ones(3)], options).wait()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    for g in groups:
        g.abort()


def interrupted_first():
    """The same for the first call with a tensor."""
    interrupted(first=True)


def interrupted_work():
    """The same for an asynchronous call that is waited for."""
    interrupted(True)


def version():
    """Another version of torch is refused clearly."""
    torch.__version__ = "1.13.1"
    try:
        import mscclpp.torch
    except ImportError as problem:
        assert "1.13.1" in str(problem) and "2.11" in str(problem), problem
        return
    sys.exit("it was taken")


globals()[scene]()
print(f"rank {rank} is done", flush=True)
if dist.is_initialized() and scene not in ("raises", "not_destroyed"):
    dist.destroy_process_group()
