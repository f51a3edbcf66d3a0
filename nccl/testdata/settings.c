/* Prints what the library makes of the variables: settings of the configuration, then NCCL's own configuration. It is linked
 * with the sources of the library that read them. The arguments are a device, and the folder of the RDMA devices. */
#include <stdio.h>
#include <stdlib.h>

#include "../src/comm.h"
#include "../src/settings.h"

int main(int argc, char** argv) {
  static struct ncclComm c;
  struct settings s;
  if (argc > 2) {
    char text[256];
    int port;
    adapters_named(getenv("NCCL_IB_HCA"), argv[2], text, sizeof text, &port);
    printf("%s %d\n", text, port);
    return 0;
  }
  c.device = atoi(argv[1]);
  if (config_take(&c, NULL, NULL) != ncclSuccess) return 1;
  settings_read(&s, &(struct settings_for){c.device, c.config.maxCTAs > 0 ? c.config.maxCTAs : 0, getenv("TEST_LISTED"), getenv("TEST_NET")});
  for (size_t i = 0; i < s.set.count; i++) printf("%s\n", s.set.texts[i]);
  for (size_t i = 0; i < s.defaults.count; i++) printf("default %s\n", s.defaults.texts[i]);
  settings_read(&s, &(struct settings_for){c.device, 0, NULL, NULL}); /* warnings are said once */
  settings_free(&s);
#define FIELD(name) printf(#name "=%d\n", c.config.name)
  FIELD(blocking);
  FIELD(cgaClusterSize);
  FIELD(minCTAs);
  FIELD(splitShare);
  FIELD(CTAPolicy);
  FIELD(nvlsCTAs);
  FIELD(nChannelsPerNetPeer);
  return 0;
}
