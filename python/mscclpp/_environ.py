"""The environment, with the names of MSCCL++'s: what a program may want to read or print of it."""

from __future__ import annotations

import os

__all__ = ["Env", "env"]

_TEXTS = {
    "debug": ("MSCCLPP_DEBUG", ""), "debug_subsys": ("MSCCLPP_DEBUG_SUBSYS", ""), "debug_file": ("MSCCLPP_DEBUG_FILE", ""),
    "hca_devices": ("MSCCLPP_HCA_DEVICES", ""), "hostid": ("MSCCLPP_HOSTID", ""), "socket_family": ("MSCCLPP_SOCKET_FAMILY", ""),
    "socket_ifname": ("MSCCLPP_SOCKET_IFNAME", ""), "comm_id": ("MSCCLPP_COMM_ID", ""), "ibv_mode": ("MSCCLPP_IBV_MODE", ""),
    "npkit_dump_dir": ("MSCCLPP_NPKIT_DUMP_DIR", ""),
}


class Env:
    """The variables as they were when env() was called first. Attributes are read-only.

    This library takes its own configuration from a file, from variables such as ``MSCCLPP_LOG__LEVEL`` and from the settings of a
    Communicator: ``configuration`` has those variables. The others have MSCCL++'s names, for programs that read them.

    Attributes:
        cache_dir: folder for files that are made once: MSCCLPP_CACHE_DIR, or ~/.cache/mscclpp.
        home: MSCCLPP_HOME, or the folder of this package.
        configuration: keys of the configuration that the environment sets, with their values: {"log.level": "debug"}.
        cuda_ipc_use_default_stream: MSCCLPP_CUDAIPC_USE_DEFAULT_STREAM.
        ib_gid_index: MSCCLPP_IB_GID_INDEX, 0 if it is not set.
    """

    __slots__ = (*_TEXTS, "cache_dir", "home", "configuration", "cuda_ipc_use_default_stream", "ib_gid_index")

    debug: str
    debug_subsys: str
    debug_file: str
    hca_devices: str
    hostid: str
    socket_family: str
    socket_ifname: str
    comm_id: str
    ibv_mode: str
    npkit_dump_dir: str
    cache_dir: str
    home: str
    configuration: dict[str, str]
    cuda_ipc_use_default_stream: bool
    ib_gid_index: int

    def __init__(self, variables) -> None:
        def put(name, value):
            object.__setattr__(self, name, value)
        for name, (variable, default) in _TEXTS.items():
            put(name, variables.get(variable, default))
        put("cache_dir", variables.get("MSCCLPP_CACHE_DIR") or os.path.join(os.path.expanduser("~"), ".cache", "mscclpp"))
        put("home", variables.get("MSCCLPP_HOME") or os.path.dirname(os.path.abspath(__file__)))
        put("cuda_ipc_use_default_stream", variables.get("MSCCLPP_CUDAIPC_USE_DEFAULT_STREAM", "").lower() in ("1", "true", "on", "yes"))
        index = variables.get("MSCCLPP_IB_GID_INDEX", "0")
        put("ib_gid_index", int(index) if index.lstrip("-").isdigit() else 0)
        put("configuration", {
            name[len("MSCCLPP_"):].lower().replace("__", "."): value for name, value in variables.items()
            if name.startswith("MSCCLPP_") and "__" in name})

    def __setattr__(self, name: str, value) -> None:
        raise AttributeError(f"env().{name}: expected nobody to set it: set the variable before the program is started")

    def __repr__(self) -> str:
        return f"Env({', '.join(f'{n}={getattr(self, n)!r}' for n in self.__slots__)})"


_first: Env | None = None


def env() -> Env:
    """Return the environment, as it was at the first call."""
    global _first
    if _first is None:
        _first = Env(os.environ)
    return _first
