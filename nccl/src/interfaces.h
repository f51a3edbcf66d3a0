/* Network interfaces as NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY choose them. */
#pragma once

#include <netinet/in.h>

struct interface_address {
  struct sockaddr_storage addr; /* port 0 */
  char name[32];
};

/* interfaces_find writes up to max addresses of this host that others can reach, best first, and
 * returns how many. Loopback counts only if there is nothing else, or if it is asked for. */
int interfaces_find(struct interface_address* out, int max);

/* interfaces_in is interfaces_find with a list of its own; NULL: any. */
int interfaces_in(const char* list, struct interface_address* out, int max);

/* interface_named reports whether a name is in a list such as "eth,ib", "=eth0" or "^docker,lo". */
int interface_named(const char* list, const char* name);
