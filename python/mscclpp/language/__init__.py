"""The language for execution plans, with the names of MSCCL++'s: its programs run unchanged.

    from mscclpp.language.channel import *
    from mscclpp.language.collectives import *
    from mscclpp.language.general import *
    from mscclpp.language.program import *
    from mscclpp.language.rank import *

    with CollectiveProgram("allreduce", AllReduce(2, 1, True), 2):
        for rank in range(2):
            channel = MemoryChannel(1 - rank, rank)
            ...
        print(JSON())

The compiler is the one of mscclpp-go's plan/dsl, in the C library: a call of a program here is a call there, and raises what
MSCCL++ raises. The plan that JSON() returns is byte for byte the one of MSCCL++. docs/plans.md has the meaning of the operations.
"""

from .utils import *
