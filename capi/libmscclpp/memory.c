/* Memory, windows and channels: the C side. */
#include "_cgo_export.h"
#include "internal.h"

mscclpp_result_t mscclpp_memory_alloc(mscclpp_comm_t comm, size_t bytes, mscclpp_memory_t *memory) {
  PLACE(memory, "memory alloc");
  SETUP(mscclppGoMemoryAlloc((uintptr_t)comm, bytes, (uintptr_t *)memory, failure_here()));
}

mscclpp_result_t mscclpp_memory_register(mscclpp_comm_t comm, void *address, size_t bytes, mscclpp_memory_t *memory) {
  PLACE(memory, "memory register");
  if (address == NULL || bytes == 0)
    return failed(MSCCLPP_INVALID, "memory register: %zu bytes at %p: expected memory of the program", bytes, address);
  SETUP(mscclppGoMemoryRegister((uintptr_t)comm, (uintptr_t)address, bytes, (uintptr_t *)memory, failure_here()));
}

mscclpp_result_t mscclpp_memory_range(mscclpp_memory_t memory, void **address, size_t *bytes) {
  DATA(mscclppGoMemoryRange((uintptr_t)memory, (uintptr_t *)address, bytes, failure_here()));
}

mscclpp_result_t mscclpp_memory_write(mscclpp_memory_t memory, size_t offset, const void *bytes, size_t count) {
  if (bytes == NULL && count > 0) return failed(MSCCLPP_INVALID, "memory write: %zu bytes from NULL", count);
  DATA(mscclppGoMemoryCopy((uintptr_t)memory, offset, (void *)bytes, count, 1, failure_here()));
}

mscclpp_result_t mscclpp_memory_read(mscclpp_memory_t memory, size_t offset, void *bytes, size_t count) {
  if (bytes == NULL && count > 0) return failed(MSCCLPP_INVALID, "memory read: %zu bytes to NULL", count);
  DATA(mscclppGoMemoryCopy((uintptr_t)memory, offset, bytes, count, 0, failure_here()));
}

mscclpp_result_t mscclpp_memory_free(mscclpp_memory_t memory) {
  if (memory == NULL) return MSCCLPP_SUCCESS;
  TEARDOWN(mscclppGoFree((uintptr_t)memory, KIND_MEMORY, failure_here()));
}

mscclpp_result_t mscclpp_memory_keep(mscclpp_memory_t memory, mscclpp_kept_t *kept) {
  PLACE(kept, "memory keep");
  DATA(mscclppGoMemoryKeep((uintptr_t)memory, (uintptr_t *)kept, failure_here()));
}

mscclpp_result_t mscclpp_memory_release(mscclpp_kept_t kept) {
  if (kept == NULL) return MSCCLPP_SUCCESS;
  TEARDOWN(mscclppGoMemoryRelease((uintptr_t)kept, failure_here()));
}

mscclpp_result_t mscclpp_window_create(mscclpp_comm_t comm, mscclpp_memory_t memory, mscclpp_window_t *window) {
  PLACE(window, "window create");
  SETUP(mscclppGoWindowCreate((uintptr_t)comm, (uintptr_t)memory, (uintptr_t *)window, failure_here()));
}

mscclpp_result_t mscclpp_window_peer(mscclpp_window_t window, int32_t rank, void **address, size_t *bytes) {
  DATA(mscclppGoWindowPeer((uintptr_t)window, rank, (uintptr_t *)address, bytes, failure_here()));
}

mscclpp_result_t mscclpp_window_channels(mscclpp_window_t window, void *handles, size_t *size) {
  if (size == NULL) return failed(MSCCLPP_INVALID, "window channels: the size is NULL");
  if (handles == NULL && *size > 0) return failed(MSCCLPP_INVALID, "window channels: the handles are NULL, and their size %zu", *size);
  SETUP(mscclppGoWindowChannels((uintptr_t)window, handles, size, failure_here()));
}

mscclpp_result_t mscclpp_window_arrange(mscclpp_comm_t comm, mscclpp_memory_t memory, uint32_t flags, mscclpp_window_t *window) {
  PLACE(window, "window arrange");
  SETUP(mscclppGoWindowArrange((uintptr_t)comm, (uintptr_t)memory, flags, (uintptr_t *)window, failure_here()));
}

mscclpp_result_t mscclpp_window_flat(mscclpp_window_t window, void **base, size_t *stride) {
  if (base) *base = NULL;
  if (stride) *stride = 0;
  DATA(mscclppGoWindowFlat((uintptr_t)window, (uintptr_t *)base, stride, failure_here()));
}

mscclpp_result_t mscclpp_window_free(mscclpp_window_t window) {
  if (window == NULL) return MSCCLPP_SUCCESS;
  TEARDOWN(mscclppGoFree((uintptr_t)window, KIND_WINDOW, failure_here()));
}

mscclpp_result_t mscclpp_memory_channel(mscclpp_comm_t comm, int32_t peer, mscclpp_memory_t memory, mscclpp_channel_t *channel) {
  PLACE(channel, "memory channel");
  SETUP(mscclppGoChannel((uintptr_t)comm, CHANNEL_MEMORY, peer, (uintptr_t)memory, (uintptr_t)memory, (uintptr_t *)channel, failure_here()));
}

mscclpp_result_t mscclpp_port_channel(mscclpp_comm_t comm, int32_t peer, mscclpp_memory_t source, mscclpp_memory_t target,
                                      mscclpp_channel_t *channel) {
  PLACE(channel, "port channel");
  SETUP(mscclppGoChannel((uintptr_t)comm, CHANNEL_PORT, peer, (uintptr_t)source, (uintptr_t)target, (uintptr_t *)channel, failure_here()));
}

mscclpp_result_t mscclpp_switch_channel(mscclpp_comm_t comm, mscclpp_memory_t memory, mscclpp_channel_t *channel) {
  PLACE(channel, "switch channel");
  SETUP(mscclppGoChannel((uintptr_t)comm, CHANNEL_SWITCH, -1, (uintptr_t)memory, (uintptr_t)memory, (uintptr_t *)channel, failure_here()));
}

mscclpp_result_t mscclpp_channel_handle(mscclpp_channel_t channel, void *handle, size_t *size) {
  if (size == NULL) return failed(MSCCLPP_INVALID, "channel handle: the size is NULL");
  if (handle == NULL && *size > 0) return failed(MSCCLPP_INVALID, "channel handle: the handle is NULL, and its size %zu", *size);
  DATA(mscclppGoChannelHandle((uintptr_t)channel, handle, size, failure_here()));
}

mscclpp_result_t mscclpp_channel_free(mscclpp_channel_t channel) {
  if (channel == NULL) return MSCCLPP_SUCCESS;
  TEARDOWN(mscclppGoFree((uintptr_t)channel, KIND_CHANNEL, failure_here()));
}

mscclpp_result_t mscclpp_port_put(mscclpp_channel_t channel, size_t target_offset, size_t source_offset, size_t bytes) {
  DATA(mscclppGoPort((uintptr_t)channel, PORT_PUT, target_offset, source_offset, bytes, 0, failure_here()));
}

mscclpp_result_t mscclpp_port_put_signal(mscclpp_channel_t channel, size_t target_offset, size_t source_offset, size_t bytes) {
  DATA(mscclppGoPort((uintptr_t)channel, PORT_PUT_SIGNAL, target_offset, source_offset, bytes, 0, failure_here()));
}

mscclpp_result_t mscclpp_port_signal(mscclpp_channel_t channel) {
  DATA(mscclppGoPort((uintptr_t)channel, PORT_SIGNAL, 0, 0, 0, 0, failure_here()));
}

mscclpp_result_t mscclpp_port_flush(mscclpp_channel_t channel, uint64_t timeout) {
  SETUP(mscclppGoPort((uintptr_t)channel, PORT_FLUSH, 0, 0, 0, timeout, failure_here()));
}

mscclpp_result_t mscclpp_port_wait(mscclpp_channel_t channel, uint64_t timeout) {
  SETUP(mscclppGoPort((uintptr_t)channel, PORT_WAIT, 0, 0, 0, timeout, failure_here()));
}

mscclpp_result_t mscclpp_comm_control(mscclpp_comm_t comm, void **control) {
  PLACE(control, "comm control");
  DATA(mscclppGoCommControl((uintptr_t)comm, (uintptr_t *)control, failure_here()));
}
