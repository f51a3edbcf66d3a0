// The table of AMD's GPUs.
//
// Streams store words, and wait for them, by kernels of ours: hipStreamWriteValue64 and hipStreamWaitValue64 are kernels as well,
// and captures do not record them. A wait keeps one wave of one compute unit busy, and the hardware's queue of its stream. It may
// be for nothing but what the host stores: what another kernel of the process stores could stand behind it in that queue. The
// table has no views: GPUs' memory is not mapped for the host.
#include "shim.h"

static const mscclpp_device_share_kind kinds[] = {
    [HIP_SHARE_LEGACY] = {sizeof(mscclpp_device_share_kind), "legacy-ipc", 0, 0},
    [HIP_SHARE_VMM] = {sizeof(mscclpp_device_share_kind), "vmm", 0, 0},
    [HIP_SHARE_DMA_BUF] = {sizeof(mscclpp_device_share_kind), "dma-buf", 1, 0},
};

const mscclpp_device_backend hip_table = {
    .size = sizeof(mscclpp_device_backend),
    .version = MSCCLPP_DEVICE_BACKEND_VERSION,
    .share_count = HIP_SHARES,
    .capabilities = MSCCLPP_DEVICE_HAS_SHARES | MSCCLPP_DEVICE_HAS_PEERS | MSCCLPP_DEVICE_HAS_HOST | MSCCLPP_DEVICE_HAS_RANGES |
                    MSCCLPP_DEVICE_HAS_FLUSH | MSCCLPP_DEVICE_HAS_STREAMS | MSCCLPP_DEVICE_HAS_EVENTS | MSCCLPP_DEVICE_HAS_TIMES |
                    MSCCLPP_DEVICE_HAS_GRAPHS | MSCCLPP_DEVICE_HAS_WAITS | MSCCLPP_DEVICE_HAS_BINDING | MSCCLPP_DEVICE_HAS_DATA |
                    MSCCLPP_DEVICE_HAS_GRAPH_TIMES,
    .type = "hip",
    .product = "AMD HIP runtime",
    .share_kinds = kinds,
#define E(name) .name = hip_##name,
    E(start) E(count) E(open) E(close) E(info) E(memory_info) E(reaches) E(bind) E(unbind)
    E(alloc) E(alloc_data) E(free_memory) E(range_of) E(grant) E(upload) E(download) E(fill)
    E(export_share) E(import_share) E(unmap)
    E(host_alloc) E(host_free) E(host_register) E(host_unregister) E(flush_writes)
    E(module_load) E(module_unload) E(kernel_find) E(kernel_allow) E(kernel_fit) E(launch)
    E(stream_create) E(stream_destroy) E(stream_query) E(stream_capturing) E(stream_sync)
    E(event_create) E(event_destroy) E(event_record) E(event_wait) E(event_query) E(event_sync) E(event_elapsed)
    E(event_record_each)
    E(capture_begin) E(capture_end) E(graph_launch) E(graph_destroy)
    E(copy) E(set) E(write_word) E(wait_word) E(describe)
#undef E
};
