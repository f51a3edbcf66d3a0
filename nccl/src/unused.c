#include "unused.h"

#include <string.h>

#include "env.h"
#include "log.h"

static const char table[] = "MSCCLPP_COLLECTIVES__TABLE chooses algorithms";
static const char scratch[] = "MSCCLPP_COMM__SCRATCH is the memory for staging";
static const char network[] = "MSCCLPP_TRANSPORTS names the networks, and MSCCLPP_TRANSPORT__NAME__KEY steers each";
static const char plugins[] = "transports of this library are plugins of their own";

/* Those whose user expects something else to happen: a warning names what does it here. A name may begin
 * or end with *. */
static const struct {
  const char *name, *instead;
} warned[] = {
    {"NCCL_ALGO", table},
    {"NCCL_PROTO", table},
    {"NCCL_BUFFSIZE", scratch},
    {"NCCL_NTHREADS", table},
    {"*_THRESHOLD", table},
    {"NCCL_PXN_*", network},
    {"NCCL_P2P_NET_CHUNKSIZE", scratch},
    {"NCCL_RUNTIME_CONNECT", "all connections are made when a communicator first needs them"},
    {"NCCL_NET_SHARED_*", network},
    {"NCCL_LAUNCH_MODE", "each rank launches its own kernels"},
    {"NCCL_NET_PLUGIN", plugins},
    {"NCCL_TUNER_PLUGIN", table},
    {"NCCL_ENV_PLUGIN", "variables are read from the environment and the files of NCCL"},
};

/* Those that describe a machine, or turn off what is not there: a line at level INFO. */
static const char* const noted[] = {
    "NCCL_TOPO_FILE",       "NCCL_TOPO_DUMP_FILE",  "NCCL_CROSS_NIC",      "NCCL_IGNORE_*_MISMATCH",
    "NCCL_NET_MERGE_*",     "NCCL_IB_MERGE_NICS",   "NCCL_CUMEM_ENABLE",   "NCCL_GRAPH_MIXING_SUPPORT",
    "NCCL_IB_PCI_RELAXED_ORDERING", "NCCL_IB_ROCE_VERSION_NUM", "NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE",
    "NCCL_LAUNCH_ORDER_IMPLICIT",
};

/* fits compares a name with a pattern that has one * at most. */
static int fits(const char* name, const char* pattern) {
  const char* star = strchr(pattern, '*');
  if (star == NULL) return strcmp(name, pattern) == 0;
  size_t before = (size_t)(star - pattern), after = strlen(star + 1), n = strlen(name);
  return n >= before + after && memcmp(name, pattern, before) == 0 && strcmp(name + n - after, star + 1) == 0;
}

static void say(const char* name, const char* value, void* with) {
  (void)with;
  if (strcmp(name, "NCCL_ALGO") == 0 && strcmp(value, "^NVLS") == 0) return; /* as it is here */
  for (size_t i = 0; i < sizeof warned / sizeof *warned; i++)
    if (fits(name, warned[i].name)) {
      log_warning("%s=%s has no effect on this library: %s", name, value, warned[i].instead);
      return;
    }
  for (size_t i = 0; i < sizeof noted / sizeof *noted; i++)
    if (fits(name, noted[i])) log_info(SUB_ENV, -1, "%s=%s has no effect on this library", name, value);
}

void say_unused(void) { each_setting(say, NULL); }
