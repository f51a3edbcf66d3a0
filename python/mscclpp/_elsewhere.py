"""Names of MSCCL++ that this package has not: what a program does here instead. docs/python.md has the table."""

_CHOSEN = "the library chooses how two ranks are connected: comm.memory_channel, comm.port_channel; keys of the configuration restrict it"
_OWN = "a channel has its own semaphores: comm.memory_channel, comm.port_channel, and Host2HostSemaphore between hosts"
_NATIVE = "expected mscclpp.compile, AlgorithmCollectionBuilder, or kernels by mscclpp.utils: there are no algorithms of C++ objects here"

NAMES = {
    **dict.fromkeys(("Connection", "EndpointConfig", "EndpointConfigIb", "Transport", "TransportFlags", "IbMode", "Device", "DeviceType"), _CHOSEN),
    **dict.fromkeys(("Semaphore", "Host2DeviceSemaphore", "MemoryDevice2DeviceSemaphore", "SmDevice2DeviceSemaphore"), _OWN),
    **dict.fromkeys(("AlgorithmBuilder", "compile_native", "NativeCodeCompiler", "DslCompiler", "ExecutionPlanRegistry"), _NATIVE),
    "TcpBootstrap": "expected Communicator(), where a launcher says rank and place, or Communicator(UniqueId, rank, size)",
    "ProxyService": "each port channel has its proxy; comm.proxy(slots, function) makes one of the program's",
    "ProxyChannel": "expected PortChannel: comm.port_channel(peer, source, target)",
    "SmChannel": "expected MemoryChannel: comm.memory_channel(peer, memory)",
    "connect_nvls_collective": "expected comm.switch_channel(memory), which raises UnsupportedError where the hardware has no multicast",
    "is_nvls_supported": "comm.switch_channel(memory) raises UnsupportedError where the hardware has no multicast",
    "is_bulk_supported": "nothing here asks for it",
    "GpuBufferGranularity": "memory suits multicast where there is any: RawGpuBuffer(nelems)",
    "alloc_shared_physical_cuda": "expected RawGpuBuffer(nelems), or comm.alloc(size)",
    "numa": "mscclpp-run binds ranks to processors: --bind-to",
    "npkit": "mscclpp-run --trace FILE records calls: docs/observing.md",
}
