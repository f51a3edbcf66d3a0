"""Communicators for groups of torch.distributed, of any backend."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ._communicator import Communicator
from ._unique_id import UniqueId


def communicator(group, device: torch.device) -> Communicator:
    """Return a communicator of the ranks of a group, None for the default one. Collective."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    own = [UniqueId.create().bytes if rank == 0 else None]
    dist.broadcast_object_list(own, dist.get_global_rank(group or dist.group.WORLD, 0), group, device if dist.get_backend(group) == "nccl" else None)
    return joined(own[0], rank, size, device)


def joined(own: bytes, rank: int, size: int, device: torch.device) -> Communicator:
    """Return the communicator of an id. Collective."""
    index = device.index if device.index is not None or device.type == "cpu" else torch.cuda.current_device()
    comm = Communicator(UniqueId(own), rank, size, device="host" if device.type == "cpu" else f"cuda:{index}")
    comm.join()
    return comm


def beside(comm, tensor: torch.Tensor) -> bool:
    """Return whether a tensor is on the device of a communicator."""
    if comm.device == "host":
        return tensor.device.type == "cpu"
    return tensor.is_cuda and comm.device.rpartition(":")[2] == str(tensor.device.index)


def device_of(device: str | torch.device | None) -> torch.device:
    """Return a device; None: the current GPU if the program has one, else "cpu"."""
    return torch.device(device if device is not None else "cuda" if torch.cuda.is_available() else "cpu")
