"""Operations of a process group are performed by its threads, or by those that wait for them. No rank is needed."""

import sys
import threading
import time

import mscclpp.torch  # noqa: F401 - torch is imported as the package does
from mscclpp._torch_work import Work, Worker

LONG = 100.0  # seconds, in which a loaded machine does anything here


class Group:
    _limit = LONG


worker, group, order = Worker("under test"), Group(), []


def job(number, wait=None):
    """Return a work that notes its number and its thread, once it is put."""
    work, ran = Work(group, [number]), threading.Event()

    def run():
        if wait is not None:
            wait.wait(LONG)
        order.append((number, threading.get_ident()))
        ran.set()
    worker.put(run, work)
    return work, ran


# A thread that waits performs jobs that have not begun, in order, and wakes the worker for those behind.
me = threading.get_ident()
for i in range(50):
    worker._turn.acquire()  # as another one that performs a job: the thread passes
    first, second, third = job(1), job(2), job(3)
    until = time.monotonic() + LONG
    while not worker._wake.empty() and time.monotonic() < until:  # the thread has seen that it is not its turn
        time.sleep(0.0001)
    worker._turn.release()
    second[0].wait()
    assert [n for n, _ in order[:2]] == [1, 2] and second[0].is_completed()
    assert third[1].wait(LONG), "the job behind was forgotten"
    third[0].wait()
    assert worker.idle and [n for n, _ in order] == [1, 2, 3], order
    order.clear()

# The worker ends the job that it has begun, and a time limit leaves a job to it.
gate = threading.Event()
begun, behind = job(1, gate), job(2)
threading.Timer(0.01, gate.set).start()
behind[0].wait(timeout=LONG)
assert [n for n, _ in order] == [1, 2] and me not in [t for _, t in order[1:]], order
begun[0].wait()

# An error is raised to who waits, and the next job is performed.
failing = Work(group, [])
worker.put(lambda: 1 // 0, failing)
try:
    failing.wait()
except ZeroDivisionError:
    pass
else:
    sys.exit("nothing was raised")
assert isinstance(failing.exception(), ZeroDivisionError) and not failing.is_success()
job(4)[0].wait()

# A callback may wait for what was put behind.
worker._turn.acquire()
first, then = job(5), job(6)
seen = first[0].get_future().then(lambda f: then[0].wait())
worker._turn.release()
first[0].wait()
assert seen.wait() is True

# So may it for the future of one, and for that of a job that it puts: chains of callbacks, as hooks of DDP have them, with a worker that has one thread.
chain = Worker("chain")
chain._turn.acquire()
works = [Work(group, [i]) for i in range(4)]
for work in works:
    chain.put(lambda: None, work)


def another(value):
    work = Work(group, [value + 1])
    chain.put(lambda: None, work)
    return work.get_future()


deep = works[0].get_future().then(lambda f: works[3].get_future().wait()[0] + another(f.value()[0]).then(lambda g: another(g.value()[0]).wait()[0]).wait())
chain._turn.release()
chain._offer()  # as who had the turn does: the thread may have looked before
ended = threading.Event()
deep.then(lambda f: ended.set())
assert ended.wait(LONG), "callbacks wait for what no thread does"
assert deep.value() == 3 + 2, deep.value()
assert len(chain._threads) <= 4, chain._threads
chain.stop()
chain.join(LONG)
assert not any(t.is_alive() for t in chain._threads), "threads are left"

# Many threads put and wait; each job is performed once.
order.clear()


def hurry(base):
    for i in range(200):
        work, _ = job(base + i)
        if i % 3:
            work.wait()
        assert i % 3 == 0 or work.is_completed()


threads = [threading.Thread(target=hurry, args=(1000 * t,)) for t in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
worker.stop()
worker.join(LONG)
numbers = [n for n, _ in order]
assert sorted(numbers) == sorted(1000 * t + i for t in range(4) for i in range(200)), len(numbers)
assert all([n for n in numbers if n // 1000 == t] == sorted(n for n in numbers if n // 1000 == t) for t in range(4))
print("rank 0 is done")
