/* Proxies: the C side. */
#include "_cgo_export.h"
#include "internal.h"

int call_handler(mscclpp_proxy_fn handler, void *context, uint64_t first, uint64_t second, uint64_t position) {
  return handler(context, first, second, position);
}

mscclpp_result_t mscclpp_proxy_create(mscclpp_comm_t comm, uint32_t slots, mscclpp_proxy_fn handler, void *context,
                                      mscclpp_proxy_t *proxy) {
  PLACE(proxy, "proxy create");
  if (handler == NULL) return failed(MSCCLPP_INVALID, "proxy create: the function for triggers is NULL");
  SETUP(mscclppGoProxyCreate((uintptr_t)comm, slots, handler, context, (uintptr_t *)proxy, failure_here()));
}

mscclpp_result_t mscclpp_proxy_handle(mscclpp_proxy_t proxy, void *handle, size_t *size) {
  if (size == NULL) return failed(MSCCLPP_INVALID, "proxy handle: the size is NULL");
  if (handle == NULL && *size > 0) return failed(MSCCLPP_INVALID, "proxy handle: the handle is NULL, and its size %zu", *size);
  DATA(mscclppGoProxyHandle((uintptr_t)proxy, handle, size, failure_here()));
}

mscclpp_result_t mscclpp_proxy_push(mscclpp_proxy_t proxy, uint64_t first, uint64_t second, uint64_t *position) {
  if (second >> 63) return failed(MSCCLPP_INVALID, "proxy push: the highest bit of the second word is set: it belongs to the ring");
  DATA(mscclppGoProxyPush((uintptr_t)proxy, first, second, position, failure_here()));
}

mscclpp_result_t mscclpp_proxy_complete(mscclpp_proxy_t proxy, uint64_t position) {
  DATA(mscclppGoProxyComplete((uintptr_t)proxy, position, failure_here()));
}

mscclpp_result_t mscclpp_proxy_flush(mscclpp_proxy_t proxy, uint64_t position, uint64_t timeout) {
  DATA(mscclppGoProxyFlush((uintptr_t)proxy, position, timeout, failure_here()));
}

mscclpp_result_t mscclpp_proxy_free(mscclpp_proxy_t proxy) {
  if (proxy == NULL) return MSCCLPP_SUCCESS;
  TEARDOWN(mscclppGoFree((uintptr_t)proxy, KIND_PROXY, failure_here()));
}
