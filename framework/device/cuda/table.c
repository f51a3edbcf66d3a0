// The table of NVIDIA GPUs.
#include "shim.h"

static const mscclpp_device_share_kind kinds[] = {
    [CUDA_SHARE_VMM] = {sizeof(mscclpp_device_share_kind), "vmm", 0, 1},
    [CUDA_SHARE_FABRIC] = {sizeof(mscclpp_device_share_kind), "fabric", 0, 1},
    [CUDA_SHARE_LEGACY] = {sizeof(mscclpp_device_share_kind), "legacy-ipc", 0, 0},
    [CUDA_SHARE_DMA_BUF] = {sizeof(mscclpp_device_share_kind), "dma-buf", 1, 0},
};

const mscclpp_device_backend cuda_table = {
    .size = sizeof(mscclpp_device_backend),
    .version = MSCCLPP_DEVICE_BACKEND_VERSION,
    .share_count = CUDA_SHARES,
    .capabilities = MSCCLPP_DEVICE_HAS_SHARES | MSCCLPP_DEVICE_HAS_PEERS | MSCCLPP_DEVICE_HAS_HOST | MSCCLPP_DEVICE_HAS_VIEWS |
                    MSCCLPP_DEVICE_HAS_RANGES | MSCCLPP_DEVICE_HAS_FLUSH | MSCCLPP_DEVICE_HAS_STREAMS | MSCCLPP_DEVICE_HAS_EVENTS |
                    MSCCLPP_DEVICE_HAS_TIMES | MSCCLPP_DEVICE_HAS_ALL_EVENT | MSCCLPP_DEVICE_HAS_GRAPHS | MSCCLPP_DEVICE_HAS_WAITS |
                    MSCCLPP_DEVICE_HAS_BINDING | MSCCLPP_DEVICE_HAS_STREAM_IDS | MSCCLPP_DEVICE_HAS_MULTICAST | MSCCLPP_DEVICE_HAS_PLACES |
                    MSCCLPP_DEVICE_HAS_GRAPH_TIMES | MSCCLPP_DEVICE_HAS_PARTS,
    .type = "cuda",
    .product = "NVIDIA driver",
    .share_kinds = kinds,
#define E(name) .name = cuda_##name,
    E(start) E(count) E(open) E(close) E(info) E(memory_info) E(reaches) E(bind) E(unbind)
    E(alloc) E(free_memory) E(range_of) E(grant) E(upload) E(download) E(fill)
    E(export_share) E(import_share) E(unmap)
    E(host_alloc) E(host_free) E(host_register) E(host_unregister)
    E(view_open) E(view_store) E(view_settle) E(view_close) E(flush_writes)
    E(module_load) E(module_unload) E(kernel_find) E(kernel_allow) E(kernel_fit) E(launch)
    E(stream_create) E(stream_destroy) E(stream_query) E(stream_capturing) E(stream_sync)
    E(event_create) E(event_destroy) E(event_record) E(event_record_all) E(event_wait) E(event_query) E(event_sync) E(event_elapsed)
    E(capture_begin) E(capture_end) E(graph_launch) E(graph_destroy)
    E(copy) E(set) E(write_word) E(wait_word) E(describe) E(stream_id) E(stream_processors)
    E(multicast_ready) E(multicast_create) E(multicast_share) E(multicast_open) E(multicast_add) E(multicast_bind) E(multicast_unbind)
    E(multicast_map) E(multicast_unmap) E(multicast_close)
    E(reserve) E(unreserve) E(place_share) E(place_own) E(displace) E(event_record_each)
#undef E
};
