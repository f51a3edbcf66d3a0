"""Jobs in which something goes wrong; the argument says what. Ranks that are to notice it say so."""

import array
import ctypes
import os
import signal
import sys
import threading
import time

import mscclpp

scene, rank = sys.argv[1], int(os.environ.get("RANK", "0"))
if scene.startswith("interrupted"):  # a thread runs only where another one lets it, so that what it sees of the main thread is a call of C
    sys.setswitchinterval(1000)


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


def one():
    return array.array("f", [1])


def waits(call, *texts):
    """Be a rank whose call fails, with these texts. It may still be about to join when the others have ended."""
    def join_and_call():
        with mscclpp.Communicator() as comm:
            call(comm)
    return noticed(join_and_call, mscclpp.PeerError, "rank 1", *texts)


def raises():
    """Rank 1 raises while the others wait: they learn what, and of whom."""
    if rank != 1:
        problem = waits(lambda comm: comm.all_reduce(one()), "ValueError: a defect of the program")
        assert problem.rank == 1, problem.rank
        return
    try:
        with mscclpp.Communicator():
            raise ValueError("a defect of the program")
    except ValueError as problem:
        assert not isinstance(problem, mscclpp.Error), problem


def uncaught():
    """The same without a with statement: what ends the program is told at exit."""
    global kept
    if rank != 1:
        waits(lambda comm: comm.all_reduce(one()), "ValueError: that nobody catches")
        return
    kept = mscclpp.Communicator()
    raise ValueError("that nobody catches")


def uncaught_beside_a_thread():
    """The same while a thread that the interpreter waits for is in a call."""
    if rank == 1:
        comm, calls = mscclpp.Communicator(), threading.Event()

        def call():
            calls.set()
            noticed(lambda: comm.recv(one(), 0), mscclpp.ClosedError, "ValueError: that nobody catches")
        threading.Thread(target=call).start()
        calls.wait()
        raise ValueError("that nobody catches")
    waits(lambda comm: comm.recv(one(), 1), "ValueError: that nobody catches")


def killed_in_norm():
    """Rank 1 is killed while the others are in the fused all-reduce and norm: they learn who it was."""
    from mscclpp.inference import Workspace

    def row():
        raw = (ctypes.c_byte * (64 * 4 + 16))()
        skip = -ctypes.addressof(raw) % 16
        return memoryview(raw).cast("B")[skip:skip + 64 * 4].cast("f")

    def calls(comm):
        with Workspace(comm, 1 << 20) as space:
            x, residual, weight, out, total = (row() for _ in range(5))
            space.all_reduce_norm(x, residual, weight, out, total)
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            space.all_reduce_norm(x, residual, weight, out, total)

    waits(calls)


def killed_in_dispatch():
    """Rank 1 is killed while the others wait for its tokens."""
    killed_in_experts(False)


def killed_in_combine():
    """Rank 1 is killed between dispatch and combine, while the others wait for its sums."""
    killed_in_experts(True)


def killed_in_dispatch_over_hosts():
    """The same where each rank is on a host of its own."""
    os.environ["MSCCLPP_BOOTSTRAP__HOST_ID"] = f"host-{rank}"
    killed_in_experts(False)


def killed_in_combine_over_hosts():
    """The same between dispatch and combine."""
    os.environ["MSCCLPP_BOOTSTRAP__HOST_ID"] = f"host-{rank}"
    killed_in_experts(True)


def killed_in_experts(between):
    from mscclpp.moe import Experts

    def memory(n, kind):
        raw = (ctypes.c_byte * (n + 16))()
        skip = -ctypes.addressof(raw) % 16
        return memoryview(raw).cast("B")[skip:skip + n].cast(kind)

    tokens, hidden = 2, 8

    def calls(comm):
        with Experts(comm, tokens, hidden, comm.size) as space:
            rows = space.local * comm.size * tokens
            x, chosen, weights = memory(2 * tokens * hidden, "H"), memory(4 * tokens * comm.size, "i"), memory(4 * tokens * comm.size, "f")
            for i in range(len(chosen)):
                chosen[i] = i % comm.size  # every rank has rows of every token
            out, handle = memory(2 * rows * hidden, "H"), memory(space.handle_bytes, "B")
            results = out, memory(4 * rows, "i"), memory(8 * space.local * comm.size, "q"), memory(4 * space.local, "i"), handle
            for again in (False, True):
                if rank == 1 and again and not between:
                    os.kill(os.getpid(), signal.SIGKILL)
                space.dispatch(x, chosen, *results, hidden=hidden, top_k=comm.size)
                if rank == 1 and again:
                    os.kill(os.getpid(), signal.SIGKILL)
                space.combine(out, chosen, handle, memory(2 * tokens * hidden, "H"), hidden=hidden, top_k=comm.size, weights=weights)

    waits(calls)


def leaves():
    """Rank 1 ends without close: it has left in order, and those that wait for it learn that."""
    global kept
    if rank == 1:
        kept = mscclpp.Communicator()
    else:
        waits(lambda comm: comm.all_reduce(one()))


def open_at_exit():
    """All end without close."""
    global kept
    kept = mscclpp.Communicator(log=lambda level, text: None)
    kept.split(0).all_reduce(one())


def forked():
    """A child cannot use the parent's library, and does no harm to it."""
    comm = mscclpp.Communicator()
    comm.all_reduce(one())
    child = os.fork()
    if child == 0:
        noticed(lambda: comm.all_reduce(one()), mscclpp.InvalidUsage, "forked")
        noticed(mscclpp.Communicator, mscclpp.InvalidUsage, "forked")
        comm.close()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    sums = one()
    comm.all_reduce(sums)
    assert sums[0] == comm.size, sums
    comm.close()


def forks_first():
    """A process that has imported the package alone may fork."""
    child = os.fork()
    if child == 0:
        with mscclpp.Communicator(mscclpp.UniqueId.create("127.0.0.1"), 0, 1) as comm:
            comm.all_reduce(one())
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def grouped():
    """An exception within a group reaches the ranks that wait for its messages."""
    if rank != 1:
        waits(lambda comm: comm.recv(one(), 1), "in a group")
        return
    comm = mscclpp.Communicator()
    try:
        with comm.group():
            raise KeyError("in a group")
    except KeyError:
        noticed(comm.barrier, mscclpp.ClosedError, "in a group")


def announce(function):
    """Say so when the main thread waits in the only call of C that a function of the package has."""
    def look():
        while sys._current_frames()[threading.main_thread().ident].f_code.co_name != function:
            time.sleep(0.005)
        print("waits", flush=True)
    threading.Thread(target=look).start()


def interrupted():
    """SIGINT in a call that waits: KeyboardInterrupt, and the other rank, a thread here, learns it. One process."""
    own, other, ready = mscclpp.UniqueId.create("127.0.0.1"), [], threading.Event()

    def second():
        with mscclpp.Communicator(own, 1, 2) as comm:
            comm.all_reduce(one())
            ready.set()
            other.append(noticed(lambda: comm.recv(one(), 0), mscclpp.PeerError, "KeyboardInterrupt"))
    thread = threading.Thread(target=second)
    thread.start()
    comm = mscclpp.Communicator(own, 0, 2)
    comm.all_reduce(one())
    ready.wait()
    announce("recv")
    try:
        comm.recv(one(), 1)  # that the other rank does not send
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    noticed(comm.barrier, mscclpp.ClosedError, "KeyboardInterrupt")
    thread.join()
    assert len(other) == 1


def interrupted_job():
    """SIGINT for all ranks while each waits for the other: the slower one may learn of the faster one's first."""
    try:
        with mscclpp.Communicator() as comm:
            comm.all_reduce(one())
            announce("recv")
            comm.recv(one(), 1 - rank)
    except (KeyboardInterrupt, mscclpp.PeerError) as problem:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert isinstance(problem, KeyboardInterrupt) or "KeyboardInterrupt" in str(problem), problem
        print("interrupted", flush=True)


def interrupted_child():
    """SIGINT for a forked child is none for its parent, which waits."""
    import signal
    own = mscclpp.UniqueId.create("127.0.0.1")
    reader, writer = os.pipe()

    def second():
        with mscclpp.Communicator(own, 1, 2) as comm:
            child = children.get()
            while sys._current_frames()[threading.main_thread().ident].f_code.co_name != "recv":
                time.sleep(0.005)
            os.write(writer, b"x")
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            threading.Event().wait(0.6)  # an abort would come within that
            comm.send(one(), 0)
    import queue
    children = queue.Queue()
    thread = threading.Thread(target=second)
    thread.start()
    with mscclpp.Communicator(own, 0, 2) as comm:
        child = os.fork()
        if child == 0:
            os.read(reader, 1)
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(60)
            except KeyboardInterrupt:
                os._exit(7)
            os._exit(1)
        children.put(child)
        comm.recv(got := array.array("f", [0]), 1)
        assert got[0] == 1
        thread.join()


def interrupted_join():
    """SIGINT while the communicator waits for a rank that never comes."""
    announce("join")
    try:
        mscclpp.Communicator(mscclpp.UniqueId.create("127.0.0.1"), 0, 2)
    except KeyboardInterrupt:
        print("interrupted", flush=True)


def in_a_group(comm, _):
    with comm.group():
        comm.recv(one(), 1)


def interrupted_everywhere():
    """SIGINT ends each call that can wait for a peer."""
    def channel(comm, peer):
        memory = comm.alloc(64)
        return comm.port_channel(peer, memory, memory)

    def pushed(comm):
        proxy = comm.proxy(2, lambda *_: None)  # nothing is completed
        return proxy, proxy.push(1)
    # The preparation of a call, the call, and the function in which it waits: of the first call of a type, and of later ones, which has its name.
    nothing, calls = lambda c: None, {
        "barrier": lambda c, _: c.barrier(), "all_reduce": lambda c, _: c.all_reduce(one()), "gather": lambda c, _: c.gather(one(), array.array("f", [0, 0])),
        "recv": lambda c, _: c.recv(one(), 1), "broadcast": lambda c, _: c.broadcast(one(), root=1),
    }
    waits = {name: (nothing, call, "_call") for name, call in calls.items()} | {
        "exchange": (nothing, lambda c, _: c.exchange(b"x"), "exchange"), "split": (nothing, lambda c, _: c.split(0), "split"),
        "window": (lambda c: c.alloc(64), lambda c, m: c.window(m), "_make"), "memory channel": (lambda c: c.alloc(64), lambda c, m: c.memory_channel(1, m), "_make"),
        "switch channel": (lambda c: c.alloc(4096), lambda c, m: c.switch_channel(m), "_make"), "port": (lambda c: channel(c, 1), lambda c, p: p.wait(), "_call"),
        "group": (nothing, in_a_group, "__exit__"), "proxy": (pushed, lambda c, p: p[0].flush(p[1]), "_call"),
    }
    for name, (before, call, function) in waits.items():
        own, joined, called, done = mscclpp.UniqueId.create("127.0.0.1"), *(threading.Event() for _ in range(3))

        def second(own=own, joined=joined, done=done, name=name):
            with mscclpp.Communicator(own, 1, 2) as comm:
                if name == "port":
                    channel(comm, 0)
                joined.set()
                done.wait()

        def strike(joined=joined, called=called, names=(function, name)):
            joined.wait()
            called.wait()
            while sys._current_frames()[threading.main_thread().ident].f_code.co_name not in names:
                time.sleep(0.005)
            os.kill(os.getpid(), signal.SIGINT)
        crowd = [threading.Thread(target=f) for f in (second, strike)]
        for t in crowd:
            t.start()
        comm = mscclpp.Communicator(own, 0, 2)
        made = before(comm)
        try:
            called.set()
            call(comm, made)
        except KeyboardInterrupt:
            noticed(comm.barrier, mscclpp.ClosedError, "KeyboardInterrupt")
        else:
            sys.exit(f"{name}: it was not interrupted")
        finally:
            done.set()
        for t in crowd:
            t.join()


def handled():
    """A program that handles SIGINT by itself goes on."""
    import signal
    seen = []
    signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    comm = mscclpp.Communicator()
    if comm.rank == 0:
        os.kill(os.getpid(), signal.SIGINT)
    for _ in range(2000):
        comm.all_reduce(one())
    assert len(seen) == (comm.rank == 0), seen
    comm.close()


def raising_log():
    """An exception in a function for log messages is Python's to report; calls go on."""
    reported = []
    sys.unraisablehook = lambda what: reported.append(what.exc_value)

    def log(level, text):
        raise RuntimeError("in a callback")
    with mscclpp.Communicator(settings={"log.level": "debug"}, log=log) as comm:
        comm.all_reduce(one())
    assert reported and all("in a callback" in str(p) for p in reported), reported


def threads():
    """Threads of one process use one communicator: its calls are carried out one at a time."""
    with mscclpp.Communicator(mscclpp.UniqueId.create("127.0.0.1"), 0, 1) as comm:
        problems = []

        def work():
            try:
                for _ in range(200):
                    comm.all_reduce(one())
            except BaseException as problem:
                problems.append(problem)
        crowd = [threading.Thread(target=work) for _ in range(4)]
        for t in crowd:
            t.start()
        for t in crowd:
            t.join()
        assert not problems, problems


globals()[scene]()
print(f"rank {rank} is done", flush=True)
