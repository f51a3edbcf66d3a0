"""Process groups in which something goes wrong; the argument says what."""

import datetime
import os
import sys

import torch
import torch.distributed as dist

import mscclpp

scene, rank = sys.argv[1], int(os.environ["RANK"])


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


def begin(seconds):
    """Join, and return what the ranks meet by where the group has failed."""
    import mscclpp.torch
    dist.init_process_group("mscclpp", timeout=datetime.timedelta(seconds=seconds))
    dist.barrier()
    store = dist.group.WORLD.get_group_store()
    meet(store, "begun")  # a barrier that has ended here may not have ended there
    return store


def meet(store, name):
    store.set(f"{name} {rank}", "")
    store.wait([f"{name} {r}" for r in range(2)], datetime.timedelta(seconds=60))
    if rank == 1:
        store.set(f"{name} seen", "")
    else:  # which has the store: it may end once the other has got its answer
        store.wait([f"{name} seen"], datetime.timedelta(seconds=60))


def late():
    """Rank 1 does not take part: the call of rank 0 ends with TimeoutError after the group's limit."""
    store = begin(60)
    group = dist.new_group(timeout=datetime.timedelta(seconds=60))
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
    store = begin(60)
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        noticed(lambda: work.wait(datetime.timedelta(seconds=0.3)), mscclpp.Error, "time limit of 0.3 s")
        assert work.is_completed() and not work.is_success() and work.exception() is not None
        noticed(lambda: work.get_future().wait(), Exception, "time limit")
    meet(store, "late")


def aborted():
    """An abort ends what is under way: a collective, and a message."""
    store = begin(60)
    if rank == 0:
        works = [dist.all_reduce(torch.ones(1), async_op=True), dist.irecv(torch.ones(1), 1)]
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
        begin(60)
        raise ValueError("a defect of the program")

    def wait():
        begin(60)  # it may still be there when the other has ended
        dist.all_reduce(torch.ones(1))
    noticed(wait, mscclpp.PeerError, "rank 1", "ValueError: a defect")


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
if dist.is_initialized() and scene != "raises":
    dist.destroy_process_group()
