/* Collectives: the C side. Each fills a call, of which Go makes one of its own. */
#include "_cgo_export.h"
#include "internal.h"

#include <stddef.h>

static mscclpp_result_t perform(mscclpp_comm_t comm, struct call *call, const mscclpp_call_options_t *options) {
  if (options != NULL) {
    mscclpp_result_t r = structure(&call->options, sizeof call->options, offsetof(mscclpp_call_options_t, scale_at), options, "mscclpp_call_options_t");
    if (r != MSCCLPP_SUCCESS) return r;
  }
  if (usable() && fast_call((uintptr_t)comm, call)) return MSCCLPP_SUCCESS;
  DATA(mscclppGoCall((uintptr_t)comm, call, failure_here()));
}

mscclpp_result_t mscclpp_all_reduce(mscclpp_comm_t comm, const void *send, void *recv, size_t count, mscclpp_type_t type,
                                    mscclpp_op_t op, const mscclpp_call_options_t *options) {
  struct call c = {.kind = CALL_ALL_REDUCE, .send = send, .recv = recv, .count = count, .type = type, .op = op};
  return perform(comm, &c, options);
}

mscclpp_result_t mscclpp_reduce(mscclpp_comm_t comm, const void *send, void *recv, size_t count, mscclpp_type_t type,
                                mscclpp_op_t op, int32_t root, const mscclpp_call_options_t *options) {
  struct call c = {.kind = CALL_REDUCE, .send = send, .recv = recv, .count = count, .type = type, .op = op, .root = root};
  return perform(comm, &c, options);
}

mscclpp_result_t mscclpp_reduce_scatter(mscclpp_comm_t comm, const void *send, void *recv, size_t count,
                                        mscclpp_type_t type, mscclpp_op_t op, const mscclpp_call_options_t *options) {
  struct call c = {.kind = CALL_REDUCE_SCATTER, .send = send, .recv = recv, .count = count, .type = type, .op = op};
  return perform(comm, &c, options);
}

mscclpp_result_t mscclpp_all_gather(mscclpp_comm_t comm, const void *send, void *recv, size_t count,
                                    mscclpp_type_t type, const mscclpp_call_options_t *options) {
  struct call c = {.kind = CALL_ALL_GATHER, .send = send, .recv = recv, .count = count, .type = type};
  return perform(comm, &c, options);
}

mscclpp_result_t mscclpp_broadcast(mscclpp_comm_t comm, const void *send, void *recv, size_t count, mscclpp_type_t type,
                                   int32_t root, const mscclpp_call_options_t *options) {
  struct call c = {.kind = CALL_BROADCAST, .send = send, .recv = recv, .count = count, .type = type, .root = root};
  return perform(comm, &c, options);
}

mscclpp_result_t mscclpp_gather(mscclpp_comm_t comm, const void *send, void *recv, size_t count, mscclpp_type_t type,
                                int32_t root, const mscclpp_call_options_t *options) {
  struct call c = {.kind = CALL_GATHER, .send = send, .recv = recv, .count = count, .type = type, .root = root};
  return perform(comm, &c, options);
}

mscclpp_result_t mscclpp_scatter(mscclpp_comm_t comm, const void *send, void *recv, size_t count, mscclpp_type_t type,
                                 int32_t root, const mscclpp_call_options_t *options) {
  struct call c = {.kind = CALL_SCATTER, .send = send, .recv = recv, .count = count, .type = type, .root = root};
  return perform(comm, &c, options);
}

mscclpp_result_t mscclpp_all_to_all(mscclpp_comm_t comm, const void *send, void *recv, size_t count,
                                    mscclpp_type_t type, const mscclpp_call_options_t *options) {
  struct call c = {.kind = CALL_ALL_TO_ALL, .send = send, .recv = recv, .count = count, .type = type};
  return perform(comm, &c, options);
}

mscclpp_result_t mscclpp_all_to_all_v(mscclpp_comm_t comm, const void *send, const size_t *send_counts,
                                      const size_t *send_offsets, void *recv, const size_t *recv_counts,
                                      const size_t *recv_offsets, mscclpp_type_t type, const mscclpp_call_options_t *options) {
  struct call c = {.kind = CALL_ALL_TO_ALL_V, .send = send, .recv = recv, .type = type, .send_counts = send_counts,
                   .send_offsets = send_offsets, .recv_counts = recv_counts, .recv_offsets = recv_offsets};
  if (send_counts == NULL || send_offsets == NULL || recv_counts == NULL || recv_offsets == NULL)
    return failed(MSCCLPP_INVALID, "all_to_all_v: counts or offsets are NULL: expected four arrays with an entry for each rank");
  return perform(comm, &c, options);
}

mscclpp_result_t mscclpp_send(mscclpp_comm_t comm, const void *buffer, size_t count, mscclpp_type_t type, int32_t peer,
                              const mscclpp_call_options_t *options) {
  struct call c = {.kind = CALL_SEND, .send = buffer, .count = count, .type = type, .root = peer};
  return perform(comm, &c, options);
}

mscclpp_result_t mscclpp_recv(mscclpp_comm_t comm, void *buffer, size_t count, mscclpp_type_t type, int32_t peer,
                              const mscclpp_call_options_t *options) {
  struct call c = {.kind = CALL_RECV, .recv = buffer, .count = count, .type = type, .root = peer};
  return perform(comm, &c, options);
}

mscclpp_result_t mscclpp_barrier(mscclpp_comm_t comm, const mscclpp_call_options_t *options) {
  struct call c = {.kind = CALL_BARRIER};
  return perform(comm, &c, options);
}

mscclpp_result_t mscclpp_group_start(mscclpp_comm_t comm) { DATA(mscclppGoGroup((uintptr_t)comm, 1, failure_here())); }

mscclpp_result_t mscclpp_group_end(mscclpp_comm_t comm) { DATA(mscclppGoGroup((uintptr_t)comm, 0, failure_here())); }

mscclpp_result_t mscclpp_prepare(mscclpp_comm_t comm, const char *collective, mscclpp_type_t type) {
  if (collective == NULL) return failed(MSCCLPP_INVALID, "prepare: the collective is NULL");
  SETUP(mscclppGoPrepare((uintptr_t)comm, (char *)collective, type, failure_here()));
}
