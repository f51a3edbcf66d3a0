#define _GNU_SOURCE
#include "interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <string.h>

#include "env.h"

int interface_named(const char* list, const char* name) {
  int excludes = *list == '^';
  list += excludes;
  int exact = *list == '=';
  list += exact;
  int found = 0;
  for (const char* at = list; *at && !found;) {
    size_t n = strcspn(at, ",");
    /* A port after a colon belongs to adapters. */
    size_t only = strcspn(at, ",:");
    if (only > 0) found = strncmp(at, name, only) == 0 && (!exact || name[only] == 0);
    at += n + (at[n] == ',');
  }
  return found != excludes;
}

/* rank_of says how well an address suits: the smallest is best, a negative one does not. */
static int rank_of(const struct ifaddrs* a, const char* named, int family) {
  if (a->ifa_addr == NULL || !(a->ifa_flags & IFF_UP) || !(a->ifa_flags & IFF_RUNNING)) return -1;
  int f = a->ifa_addr->sa_family;
  if (f != AF_INET && f != AF_INET6) return -1;
  if (family && f != family) return -1;
  if (f == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6*)a->ifa_addr)->sin6_addr)) return -1;
  int six = f == AF_INET6;
  if (named) return interface_named(named, a->ifa_name) ? six : -1;
  if (a->ifa_flags & IFF_LOOPBACK) return 30 + six;
  if (strncmp(a->ifa_name, "docker", 6) == 0 || strncmp(a->ifa_name, "veth", 4) == 0 ||
      strncmp(a->ifa_name, "virbr", 5) == 0)
    return 20 + six;
  if (strncmp(a->ifa_name, "ib", 2) == 0) return six;
  return 10 + six;
}

int interfaces_find(struct interface_address* out, int max) {
  const char* named = setting("NCCL_OOB_NET_IFNAME");
  if (named == NULL || *named == 0) named = setting("NCCL_SOCKET_IFNAME");
  return interfaces_in(named, out, max);
}

int interfaces_in(const char* named, struct interface_address* out, int max) {
  if (named && *named == 0) named = NULL;
  const char* which = setting("NCCL_SOCKET_FAMILY");
  int family = which == NULL ? 0 : strcmp(which, "AF_INET") == 0 ? AF_INET : strcmp(which, "AF_INET6") == 0 ? AF_INET6 : 0;
  struct ifaddrs* all;
  if (getifaddrs(&all) != 0) return 0;
  int n = 0;
  for (int want = 0; want < 40 && n < max; want++) {
    if (want >= 30 && n > 0) break; /* others are there */
    for (struct ifaddrs* a = all; a && n < max; a = a->ifa_next) {
      if (rank_of(a, named, family) != want) continue;
      size_t size = a->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
      memset(&out[n], 0, sizeof out[n]);
      memcpy(&out[n].addr, a->ifa_addr, size);
      strncpy(out[n].name, a->ifa_name, sizeof out[n].name - 1);
      n++;
    }
  }
  freeifaddrs(all);
  return n;
}
