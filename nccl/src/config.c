/* ncclConfig_t: any version's is read; fields that are newer than the caller's header, or
 * undefined, get defaults; the environment has the last word. */
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "comm.h"
#include "env.h"
#include "log.h"

enum { UNDEFINED = NCCL_CONFIG_UNDEF_INT, MOST_CTAS = 1024 /* of comm.max_blocks */ };

static const ncclConfig_t undefined = NCCL_CONFIG_INITIALIZER;

/* Fields by the version of the header that has them first. */
static const struct field {
  const char* name;
  const char* variable; /* which overrides it; NULL: none */
  const char* older;    /* the variable's name in older versions; NULL: it had none */
  size_t at;
  unsigned since;
  int otherwise; /* if undefined everywhere */
  int low, high; /* the values that are allowed */
} fields[] = {
#define FIELD(name, variable, since, otherwise, low, high) RENAMED(name, variable, NULL, since, otherwise, low, high)
#define RENAMED(name, variable, older, since, otherwise, low, high) \
  {#name, variable, older, offsetof(ncclConfig_t, name), since, otherwise, low, high}
    FIELD(blocking, "NCCL_COMM_BLOCKING", 21400, 1, 0, 1),
    FIELD(cgaClusterSize, "NCCL_CGA_CLUSTER_SIZE", 21700, 4, 0, INT_MAX),
    RENAMED(minCTAs, "NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", 21700, 1, 1, INT_MAX),
    RENAMED(maxCTAs, "NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS", 21700, UNDEFINED, 1, INT_MAX),
    FIELD(splitShare, "NCCL_COMM_SPLIT_SHARE_RESOURCES", 21800, 0, 0, 1),
    FIELD(trafficClass, NULL, 22500, UNDEFINED, INT_MIN, INT_MAX),
    FIELD(collnetEnable, NULL, 22700, 0, 0, 1),
    FIELD(CTAPolicy, "NCCL_CTA_POLICY", 22700, 0, 0, 3),
    FIELD(shrinkShare, NULL, 22700, 0, 0, 1),
    FIELD(nvlsCTAs, "NCCL_NVLS_NCHANNELS", 22700, UNDEFINED, 1, INT_MAX),
    FIELD(nChannelsPerNetPeer, "NCCL_NCHANNELS_PER_NET_PEER", 22800, UNDEFINED, 1, INT_MAX),
    FIELD(nvlinkCentricSched, NULL, 22800, 0, 0, 1),
#undef FIELD
#undef RENAMED
};

/* Behind ncclConfig_t of this header lie the fields of newer ones. */
struct newer {
  ncclConfig_t known;
  int graphUsageMode, numRmaCtx;        /* of 2.29 */
  int maxP2pPeers, graphStreamOrdering; /* of 2.30 */
  int launchOrderImplicit;              /* of 2.31 */
};

/* take_order sets whether calls of all communicators of the device are in order. */
static ncclResult_t take_order(ncclComm_t comm, const ncclConfig_t* given, const ncclComm_t from) {
  const size_t at = offsetof(struct newer, launchOrderImplicit);
  int wanted = UNDEFINED;
  if (given && given->version >= 23100 && given->size >= at + sizeof wanted) memcpy(&wanted, (const char*)given + at, sizeof wanted);
  if (wanted != UNDEFINED && wanted != 0 && wanted != 1)
    return fail(ncclInvalidArgument, "Invalid config launchOrderImplicit attribute value %d: expected 0 to 1", wanted);
  if (wanted == UNDEFINED) wanted = from ? from->chained : 0;
  comm->chained = setting_number("NCCL_LAUNCH_ORDER_IMPLICIT", wanted) == 1 && comm->device >= 0;
  return ncclSuccess;
}

static int* value(ncclConfig_t* c, const struct field* f) { return (int*)((char*)c + f->at); }

static void take_text(char to[NAME_MAX_BYTES], const char* text) {
  snprintf(to, NAME_MAX_BYTES, "%.*s", NAME_MAX_BYTES - 1, text ? text : "");
}

ncclResult_t config_take(ncclComm_t comm, const ncclConfig_t* given, const ncclComm_t from) {
  ncclConfig_t c = undefined;
  const char *name = NULL, *net = NULL;
  if (given) {
    size_t size = given->size;
    if (size < offsetof(ncclConfig_t, blocking)) return fail(ncclInvalidArgument, "ncclConfig_t of %zu bytes: expected NCCL_CONFIG_INITIALIZER", size);
    if (given->magic != undefined.magic)
      return fail(ncclInvalidArgument, "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER: magic 0x%x, expected 0x%x", given->magic, undefined.magic);
    memcpy(&c, given, size < sizeof c ? size : sizeof c);
    if (size < offsetof(ncclConfig_t, netName) + sizeof c.netName || c.version < 21700) c.netName = NULL;
    if (size < offsetof(ncclConfig_t, commName) + sizeof c.commName || c.version < 22700) c.commName = NULL;
    name = c.commName;
    net = c.netName;
  }
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    const struct field* f = &fields[i];
    int* v = value(&c, f);
    if (given && (c.version < f->since || given->size < f->at + sizeof(int))) *v = UNDEFINED;
    if (*v != UNDEFINED && (*v < f->low || *v > f->high))
      return fail(ncclInvalidArgument, "Invalid config %s attribute value %d: expected %d to %d", f->name, *v, f->low, f->high);
    if (*v == UNDEFINED) *v = from ? *value(&from->config, f) : f->otherwise;
    if (f->variable) {
      long set = setting_number(f->variable, f->older ? setting_number(f->older, UNDEFINED) : UNDEFINED);
      if (set != UNDEFINED && set >= f->low && set <= f->high && *v != (int)set) {
        log_info(SUB_ENV, comm->device, "%s set by environment to %ld.", f->variable, set);
        *v = (int)set;
      }
    }
  }
  if (c.maxCTAs != UNDEFINED && c.minCTAs > c.maxCTAs)
    return fail(ncclInvalidArgument, "Invalid config min/max CTAs %d/%d: expected min of at most max", c.minCTAs, c.maxCTAs);
  if (c.maxCTAs != UNDEFINED && c.maxCTAs > MOST_CTAS) {
    log_info(SUB_INIT, comm->device, "maxCTAs %d is more than a kernel has here: %d is used", c.maxCTAs, MOST_CTAS);
    c.maxCTAs = MOST_CTAS;
    if (c.minCTAs > MOST_CTAS) c.minCTAs = MOST_CTAS;
  }
  if (c.CTAPolicy == (NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO)) {
    log_info(SUB_INIT, comm->device, "CTAPolicy has both EFFICIENCY and ZERO: ZERO is used");
    c.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  }
  ncclResult_t r = take_order(comm, given, from);
  if (r != ncclSuccess) return r;
  c.size = sizeof c;
  c.version = NCCL_VERSION_CODE;
  take_text(comm->name, name ? name : from ? from->name : NULL);
  take_text(comm->net, net ? net : from ? from->net : NULL);
  c.commName = comm->name;
  c.netName = comm->net;
  comm->config = c;
  comm->blocking = c.blocking;
  return ncclSuccess;
}
