/* A proxy with a function of the program. */
#include "client.h"

struct seen {
  mscclpp_proxy_t proxy;
  uint64_t count, sum, end;
};

/* take adds the triggers up, and completes each; the second word says how to go on. */
static int take(void *context, uint64_t first, uint64_t second, uint64_t position) {
  struct seen *seen = context;
  seen->count++;
  seen->sum += first;
  if (second != 0) return (int)second;
  OK(mscclpp_proxy_complete(seen->proxy, position));
  return 0;
}

void proxies(void) {
  mscclpp_comm_t comm;
  struct seen seen = {NULL, 0, 0, 0};
  unsigned char handle[64];
  size_t size = sizeof handle;
  uint64_t i, position = 0;

  OK(mscclpp_comm_create(NULL, &comm));
  OK(mscclpp_comm_join(comm));
  REFUSES(mscclpp_proxy_create(comm, 16, NULL, NULL, &seen.proxy), MSCCLPP_INVALID, "NULL");
  REFUSES(mscclpp_proxy_create(comm, 5, take, NULL, &seen.proxy), MSCCLPP_INVALID, "power of two");
  OK(mscclpp_proxy_create(comm, 16, take, &seen, &seen.proxy));
  OK(mscclpp_proxy_handle(seen.proxy, handle, &size));
  TRUE(size == sizeof handle);
  for (i = 1; i <= 100; i++) OK(mscclpp_proxy_push(seen.proxy, i, 0, &position));
  OK(mscclpp_proxy_flush(seen.proxy, position, 0));
  TRUE(seen.count == 100 && seen.sum == 5050);
  REFUSES(mscclpp_proxy_flush(seen.proxy, position + 5, 1000000), MSCCLPP_TIMEOUT, "");
  REFUSES(mscclpp_proxy_push(seen.proxy, 0, UINT64_MAX, NULL), MSCCLPP_INVALID, "highest bit");
  OK(mscclpp_proxy_free(seen.proxy));
  REFUSES(mscclpp_proxy_push(seen.proxy, 1, 0, NULL), MSCCLPP_INVALID, "a proxy that was destroyed");

  OK(mscclpp_proxy_create(comm, 16, take, &seen, &seen.proxy));
  OK(mscclpp_proxy_push(seen.proxy, 1, 7, NULL));
  REFUSES(mscclpp_proxy_free(seen.proxy), MSCCLPP_INVALID, "returned 7");

  seen.count = 0;
  OK(mscclpp_proxy_create(comm, 16, take, &seen, &seen.proxy));
  for (i = 0; i < 10; i++) OK(mscclpp_proxy_push(seen.proxy, 1, 0, NULL));
  OK(mscclpp_comm_destroy(comm)); /* performs them */
  TRUE(seen.count == 10);
  REFUSES(mscclpp_proxy_free(seen.proxy), MSCCLPP_INVALID, "a proxy that was destroyed");
}
