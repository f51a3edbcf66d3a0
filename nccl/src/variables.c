#include "variables.h"

#include <string.h>

#include "env.h"
#include "log.h"

static const char table[] = "MSCCLPP_COLLECTIVES__TABLE chooses algorithms";
static const char scratch[] = "MSCCLPP_COMM__SCRATCH is the memory for staging";
static const char network[] = "MSCCLPP_TRANSPORTS names the networks, and MSCCLPP_TRANSPORT__NAME__KEY steers each";
static const char plugins[] = "transports of this library are plugins of their own";

enum effect { USED, NOTED, WARNED };

/* All variables that are read, or of which something is said; docs/nccl.md has them too. NOTED: those that describe a machine, or turn off
 * what is not there. WARNED: the text names what does here what their users expect. A name may begin or end with *. */
static const struct {
  const char* name;
  enum effect effect;
  const char* text;
} variables[] = {
    {"NCCL_DEBUG", USED, "which lines are printed"},
    {"NCCL_DEBUG_FILE", USED, "where lines go"},
    {"NCCL_DEBUG_SUBSYS", USED, "of which parts lines are printed"},
    {"NCCL_DEBUG_TIMESTAMP_FORMAT", USED, "the time in front of lines"},
    {"NCCL_DEBUG_TIMESTAMP_LEVELS", USED, "the levels of lines with a time"},
    {"NCCL_CONF_FILE", USED, "a file of variables"},
    {"NCCL_COMM_ID", USED, "where the ranks of an id meet"},
    {"NCCL_SOCKET_IFNAME", USED, "interfaces of the set-up and of tcp"},
    {"NCCL_OOB_NET_IFNAME", USED, "interfaces of the set-up"},
    {"NCCL_SOCKET_FAMILY", USED, "the family of addresses"},
    {"NCCL_IB_HCA", USED, "adapters"},
    {"NCCL_IB_GID_INDEX", USED, "gid_index of adapters"},
    {"NCCL_IB_ADDR_FAMILY", USED, "gid_family of adapters"},
    {"NCCL_IB_ADDR_RANGE", USED, "gid_range of adapters"},
    {"NCCL_IB_TIMEOUT", USED, "ack_timeout of adapters"},
    {"NCCL_IB_RETRY_CNT", USED, "retries of adapters"},
    {"NCCL_IB_SL", USED, "service_level of adapters"},
    {"NCCL_IB_TC", USED, "traffic_class of adapters"},
    {"NCCL_IB_QPS_PER_CONNECTION", USED, "queue_pairs of adapters"},
    {"NCCL_DMABUF_ENABLE", USED, "0: adapters do not reach memory of GPUs"},
    {"NCCL_NET_GDR_LEVEL", USED, "LOC: adapters do not reach memory of GPUs"},
    {"NCCL_NET", USED, "networks among the transports"},
    {"NCCL_IB_DISABLE", USED, "leaves out adapters"},
    {"NCCL_SHM_DISABLE", USED, "leaves out shared memory"},
    {"NCCL_P2P_DISABLE", USED, "GPUs exchange by memory of the host"},
    {"NCCL_P2P_LEVEL", USED, "how GPUs may be joined that exchange"},
    {"NCCL_MNNVL_ENABLE", USED, "0: GPUs of several hosts are not joined by a fabric"},
    {"NCCL_COMM_BLOCKING", USED, "blocking of the configuration"},
    {"NCCL_MIN_CTAS", USED, "minCTAs of the configuration"},
    {"NCCL_MIN_NCHANNELS", USED, "minCTAs of the configuration"},
    {"NCCL_MAX_CTAS", USED, "maxCTAs of the configuration"},
    {"NCCL_MAX_NCHANNELS", USED, "maxCTAs of the configuration"},
    {"NCCL_CGA_CLUSTER_SIZE", USED, "cgaClusterSize of the configuration"},
    {"NCCL_CTA_POLICY", USED, "CTAPolicy of the configuration"},
    {"NCCL_NVLS_NCHANNELS", USED, "nvlsCTAs of the configuration"},
    {"NCCL_NCHANNELS_PER_NET_PEER", USED, "nChannelsPerNetPeer of the configuration"},
    {"NCCL_COMM_SPLIT_SHARE_RESOURCES", USED, "splitShare of the configuration"},
    {"NCCL_CHECK_POINTERS", USED, "the driver is asked about buffers"},
    {"NCCL_CHECK_MODE", USED, "checks of buffers, and of the calls of all ranks"},
    {"NCCL_CHECKS_DISABLE", USED, "calls of all ranks are not compared"},
    {"NCCL_LAUNCH_ORDER_IMPLICIT", USED, "1: calls of all communicators of a device are in the order in which they are made; 0: also where a configuration asks for it"},
    {"NCCL_SET_THREAD_NAME", USED, "1: threads have names"},
    {"NCCL_WIN_ENABLE", USED, "0: windows are NULL"},
    {"NCCL_RAS_ENABLE", USED, "0: no RAS service"},
    {"NCCL_RAS_ADDR", USED, "where the RAS service listens"},
    {"NCCL_PROFILER_PLUGIN", USED, "a profiler"},
    {"NVTX_INJECTION64_PATH", USED, "a tool of NVTX"},
    {"MSCCLPP_NCCL_VERSION", USED, "the version that this library gives"},
    {"MSCCLPP_NCCL_DESTROY_SECONDS", USED, "how long Destroy waits for what runs in the background"},
    {"MSCCLPP_NCCL_LIB_PATH", USED, "another NCCL"},
    {"MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION", USED, "operations of the other NCCL"},
    {"MSCCLPP_CONFIG", USED, "the file of the configuration"},
    {"XDG_CONFIG_HOME", USED, NULL},
    {"MSCCLPP_DEVICE", USED, "host: communicators and memory of the host"},
    {"MSCCLPP_NCCL_REGISTER", USED, "whether all ranks register memory together"},
    {"MSCCLPP_TRANSPORTS", USED, "the transports"},
    {"MSCCLPP_SOCKET_IFNAME", USED, "the interface of the set-up"},
    {"MSCCLPP_SOCKET_FAMILY", USED, "the family of addresses of the set-up"},
    {"MSCCLPP_HCA_DEVICES", USED, "adapters"},
    {"MSCCLPP_IB_GID_INDEX", USED, "gid_index of adapters"},
    {"MSCCLPP_FORCE_DISABLE_GDR", USED, "adapters do not reach memory of GPUs"},
    {"MSCCLPP_CUDA_LIBRARY", USED, "the driver"},
    {"MSCCLPP_HIP_LIBRARY", USED, "the runtime of HIP"},
    {"CUDA_VISIBLE_DEVICES", USED, "numbers of devices on this machine"},
    {"HIP_VISIBLE_DEVICES", USED, "numbers of devices on this machine"},
    {"HOME", USED, NULL},
    {"TMPDIR", USED, NULL},
    {"NCCL_ALGO", WARNED, table},
    {"NCCL_PROTO", WARNED, table},
    {"NCCL_BUFFSIZE", WARNED, scratch},
    {"NCCL_NTHREADS", WARNED, table},
    {"NCCL_*_THRESHOLD", WARNED, table},
    {"NCCL_PXN_*", WARNED, network},
    {"NCCL_P2P_NET_CHUNKSIZE", WARNED, scratch},
    {"NCCL_RUNTIME_CONNECT", WARNED, "all connections are made when a communicator first needs them"},
    {"NCCL_NET_SHARED_*", WARNED, network},
    {"NCCL_LAUNCH_MODE", WARNED, "each rank launches its own kernels"},
    {"NCCL_NET_PLUGIN", WARNED, plugins},
    {"NCCL_TUNER_PLUGIN", WARNED, table},
    {"NCCL_ENV_PLUGIN", WARNED, "variables are read from the environment and the files of NCCL"},
    {"NCCL_TOPO_FILE", NOTED, NULL},
    {"NCCL_TOPO_DUMP_FILE", NOTED, NULL},
    {"NCCL_CROSS_NIC", NOTED, NULL},
    {"NCCL_IGNORE_*_MISMATCH", NOTED, NULL},
    {"NCCL_NET_MERGE_*", NOTED, NULL},
    {"NCCL_IB_MERGE_NICS", NOTED, NULL},
    {"NCCL_CUMEM_ENABLE", NOTED, NULL},
    {"NCCL_GRAPH_MIXING_SUPPORT", NOTED, NULL},
    {"NCCL_IB_PCI_RELAXED_ORDERING", NOTED, NULL},
    {"NCCL_IB_ROCE_VERSION_NUM", NOTED, NULL},
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
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
    if (!fits(name, variables[i].name)) continue;
    if (variables[i].effect == WARNED)
      log_warning("%s=%s has no effect on this library: %s", name, value, variables[i].text);
    else if (variables[i].effect == NOTED)
      log_info(SUB_ENV, -1, "%s=%s has no effect on this library", name, value);
    else if (variables[i].text)
      log_info(SUB_ENV, -1, "%s set by environment to %s: %s", name, value, variables[i].text);
    return;
  }
}

void say_variables(void) {
  const char* file = setting_file_missing();
  if (file) log_warning("NCCL_CONF_FILE=%s: no such file, or none that can be read: its variables do not count", file);
  each_setting(say, NULL);
}
