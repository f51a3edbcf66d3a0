"""Plans for several hosts, in the plan language: functions of an AlgoSpec that return a finished CollectiveProgram."""

from .allgather_multi_nodes import allgather_multi_nodes
from .allreduce_multi_nodes import allreduce_multi_nodes
from .reducescatter_multi_nodes import reducescatter_multi_nodes

__all__ = ["allgather_multi_nodes", "allreduce_multi_nodes", "reducescatter_multi_nodes"]
