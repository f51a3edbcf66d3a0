#define _GNU_SOURCE
#include "settings.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env.h"
#include "interfaces.h"
#include "log.h"

enum { MOST = 8 };

static void add(struct settings* s, const char* key, const char* value) {
  char* text;
  if (s->owned == NULL) s->owned = calloc(MOST, sizeof *s->owned);
  if (s->owned == NULL || s->count == MOST || asprintf(&text, "%s=%s", key, value) < 0) return;
  s->owned[s->count++] = text;
  s->texts = (const char* const*)s->owned;
}

/* What is said of variables that change nothing here. Names may end in *. */
static const struct {
  const char *name, *instead;
} ignored[] = {
    {"NCCL_ALGO", "MSCCLPP_COLLECTIVES__TABLE chooses algorithms"},
    {"NCCL_PROTO", "MSCCLPP_COLLECTIVES__TABLE chooses algorithms"},
    {"NCCL_BUFFSIZE", "MSCCLPP_COMM__SCRATCH is the memory for staging"},
    {"NCCL_NTHREADS", "MSCCLPP_COLLECTIVES__TABLE chooses threads"},
    {"NCCL_NET_PLUGIN", "transports of this library are plugins of their own"},
    {"NCCL_TUNER_PLUGIN", "MSCCLPP_COLLECTIVES__TABLE chooses algorithms"},
    {"NCCL_ENV_PLUGIN", "variables are read from the environment and the files of NCCL"},
};

static const char* const unused[] = {
    "NCCL_TOPO_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_CROSS_NIC", "NCCL_NET_MERGE_LEVEL", "NCCL_IB_MERGE_NICS",
};

static void say(const char* name, const char* value, void* with) {
  (void)with;
  for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
    if (strcmp(name, ignored[i].name) == 0) {
      log_warning("%s=%s has no effect on this library: %s", name, value, ignored[i].instead);
      return;
    }
  for (size_t i = 0; i < sizeof unused / sizeof *unused; i++)
    if (strcmp(name, unused[i]) == 0) log_info(SUB_ENV, -1, "%s=%s has no effect on this library", name, value);
}

static void say_once(void) { each_setting(say, NULL); }

void settings_read(struct settings* s, int blocks) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, say_once);
  *s = (struct settings){0};
  add(s, "bootstrap.timeout", "30m"); /* NCCL waits for ranks that come late */
  add(s, "check.overlap", "false"); /* NCCL leaves undefined what is sent from a buffer that is received into */
  if (getenv("MSCCLPP_COLLECTIVES__PRELOAD") == NULL) add(s, "collectives.preload", "true"); /* any call may be captured */
  struct interface_address found;
  const char* list = setting("NCCL_OOB_NET_IFNAME");
  if (list == NULL || *list == 0) list = setting("NCCL_SOCKET_IFNAME");
  if (list && *list && interfaces_find(&found, 1) == 1) add(s, "bootstrap.interface", found.name);
  const char* family = setting("NCCL_SOCKET_FAMILY");
  if (family && (strcmp(family, "AF_INET") == 0 || strcmp(family, "AF_INET6") == 0))
    add(s, "bootstrap.family", family[7] ? "inet6" : "inet");
  if (blocks > 0) {
    char text[16];
    snprintf(text, sizeof text, "%d", blocks);
    add(s, "comm.max_blocks", text);
  }
}

void settings_free(struct settings* s) {
  for (size_t i = 0; i < s->count; i++) free(s->owned[i]);
  free(s->owned);
  *s = (struct settings){0};
}
