"""A proxy of one's own: a function on a thread that gets what is pushed. mscclpp-run -n 2 python examples/python/proxy.py"""

import mscclpp

comm = mscclpp.Communicator()
squares = {}


def handle(proxy, first, second, position):
    squares[first] = first * first
    proxy.complete(position)


with comm, comm.proxy(16, handle) as proxy:
    for number in range(100):
        position = proxy.push(number)
    proxy.flush(position)  # until the last one is complete
    assert squares[99] == 9801
    print(f"rank {comm.rank}: {len(squares)} triggers were handled")
