/* Communicators: the C side. */
#include <stddef.h>

#include "_cgo_export.h"
#include "internal.h"

mscclpp_result_t mscclpp_unique_id_create(mscclpp_unique_id_t *id, const char *address) {
  if (id == NULL) return failed(MSCCLPP_INVALID, "unique id: the place for it is NULL");
  SETUP(mscclppGoUniqueID(id, (char *)address, failure_here()));
}

mscclpp_result_t mscclpp_comm_create(const mscclpp_comm_options_t *options, mscclpp_comm_t *comm) {
  mscclpp_comm_options_t o = MSCCLPP_COMM_OPTIONS_INIT;
  mscclpp_result_t r;
  PLACE(comm, "comm create");
  r = structure(&o, sizeof o, offsetof(mscclpp_comm_options_t, version), options, "mscclpp_comm_options_t");
  if (r != MSCCLPP_SUCCESS) return r;
  SETUP(mscclppGoCommCreate(&o, (uintptr_t *)comm, failure_here()));
}

mscclpp_result_t mscclpp_comm_join(mscclpp_comm_t comm) { SETUP(mscclppGoCommJoin((uintptr_t)comm, failure_here())); }

mscclpp_result_t mscclpp_comm_rank(mscclpp_comm_t comm, int32_t *rank) {
  PLACE(rank, "comm rank");
  DATA(mscclppGoCommPlace((uintptr_t)comm, rank, NULL, failure_here()));
}

mscclpp_result_t mscclpp_comm_size(mscclpp_comm_t comm, int32_t *size) {
  PLACE(size, "comm size");
  DATA(mscclppGoCommPlace((uintptr_t)comm, NULL, size, failure_here()));
}

mscclpp_result_t mscclpp_comm_query(mscclpp_comm_t comm, const char *property, char *text, size_t *size) {
  if (size == NULL) return failed(MSCCLPP_INVALID, "comm query: the size is NULL");
  if (property == NULL) return failed(MSCCLPP_INVALID, "comm query: the property is NULL");
  if (text == NULL && *size > 0) return failed(MSCCLPP_INVALID, "comm query: the text is NULL, and its size %zu", *size);
  DATA(mscclppGoCommQuery((uintptr_t)comm, (char *)property, text, size, failure_here()));
}

mscclpp_result_t mscclpp_comm_exchange(mscclpp_comm_t comm, const void *mine, size_t bytes, void *all) {
  if (all == NULL || (mine == NULL && bytes > 0)) return failed(MSCCLPP_INVALID, "comm exchange: a place is NULL");
  SETUP(mscclppGoCommExchange((uintptr_t)comm, (void *)mine, bytes, all, failure_here()));
}

mscclpp_result_t mscclpp_comm_status(mscclpp_comm_t comm) { DATA(mscclppGoCommStatus((uintptr_t)comm, failure_here())); }

mscclpp_result_t mscclpp_comm_check(mscclpp_comm_t comm) { DATA(mscclppGoCommCheck((uintptr_t)comm, failure_here())); }

mscclpp_result_t mscclpp_comm_split(mscclpp_comm_t comm, int32_t color, int32_t key, mscclpp_comm_t *out) {
  PLACE(out, "comm split");
  SETUP(mscclppGoCommSplit((uintptr_t)comm, color, key, (uintptr_t *)out, failure_here()));
}

mscclpp_result_t mscclpp_comm_shrink(mscclpp_comm_t comm, const int32_t *excluded, size_t count, uint32_t flags, mscclpp_comm_t *out) {
  PLACE(out, "comm shrink");
  if (excluded == NULL && count > 0) return failed(MSCCLPP_INVALID, "comm shrink: the list of %zu ranks is NULL", count);
  SETUP(mscclppGoCommShrink((uintptr_t)comm, (int32_t *)excluded, count, flags, (uintptr_t *)out, failure_here()));
}

mscclpp_result_t mscclpp_comm_settle(mscclpp_comm_t comm, void *const *streams, size_t count, uint64_t timeout) {
  if (streams == NULL && count > 0) return failed(MSCCLPP_INVALID, "comm settle: the list of %zu streams is NULL", count);
  SETUP(mscclppGoCommSettle((uintptr_t)comm, (void **)streams, count, timeout, failure_here()));
}

mscclpp_result_t mscclpp_comm_destroy(mscclpp_comm_t comm) {
  if (comm == NULL) return MSCCLPP_SUCCESS;
  TEARDOWN(mscclppGoCommDestroy((uintptr_t)comm, failure_here()));
}

mscclpp_result_t mscclpp_comm_abort(mscclpp_comm_t comm, const char *cause) {
  if (comm == NULL) return MSCCLPP_SUCCESS;
  TEARDOWN(mscclppGoCommAbort((uintptr_t)comm, (char *)cause, 0, failure_here()));
}

mscclpp_result_t mscclpp_comm_leave(mscclpp_comm_t comm, const char *cause) {
  if (comm == NULL) return MSCCLPP_SUCCESS;
  TEARDOWN(mscclppGoCommAbort((uintptr_t)comm, (char *)cause, 1, failure_here()));
}

mscclpp_result_t mscclpp_comm_dump(mscclpp_comm_t comm, mscclpp_write_fn write, void *context) {
  if (write == NULL) return failed(MSCCLPP_INVALID, "comm dump: the function that takes the text is NULL");
  SETUP(mscclppGoCommDump((uintptr_t)comm, write, context, failure_here()));
}
