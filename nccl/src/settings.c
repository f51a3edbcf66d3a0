#define _GNU_SOURCE
#include "settings.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "env.h"
#include "interfaces.h"
#include "log.h"
#include "maker.h"
#include "variables.h"

enum { MOST = 64, TEXT = SETTINGS_TEXT };

static void put(struct settings_list* l, const char* key, const char* value, const char* what) {
  char* text;
  if (l->texts == NULL) l->texts = calloc(MOST, sizeof *l->texts);
  if (l->texts == NULL || l->count == MOST || asprintf(&text, "%s=%s", key, value) < 0) return;
  l->texts[l->count++] = text;
  log_info(SUB_ENV, -1, "%s: %s", what, text);
}

/* own reports whether this project's own variable for a key is set, as in EnvName of framework/config. */
static int own(const char* key) {
  char name[96] = "MSCCLPP_";
  size_t n = strlen(name);
  for (; *key && n + 3 < sizeof name; key++) {
    if (*key == '.') name[n++] = '_';
    name[n++] = *key == '.' || *key == '-' ? '_' : (char)toupper((unsigned char)*key);
  }
  name[n] = 0;
  return variable(name) != NULL;
}

/* add sets what a variable of NCCL, or the program, asks for: it counts before files of the configuration, and behind the key's own variable. */
static void add(struct settings* s, const char* key, const char* value) {
  if (!own(key)) put(&s->set, key, value, "configuration");
}

/* otherwise sets what this library takes unless the user says something. */
static void otherwise(struct settings* s, const char* key, const char* value) { put(&s->defaults, key, value, "default"); }

static void add_number(struct settings* s, const char* key, long value) {
  char text[24];
  snprintf(text, sizeof text, "%ld", value);
  add(s, key, text);
}

/* is reports whether a variable has a value. */
static int is(const char* name, const char* value) {
  const char* v = setting(name);
  return v && strcasecmp(v, value) == 0;
}

static int off(const char* name) { return is(name, "0"); }
static int on(const char* name) { return setting_number(name, 0) != 0; }

/* ---- which transports ---- */

static int network_of_adapters(const char* word, size_t n) { return n > 3 && memcmp(word, "ib-", 3) == 0; }
static int word_is(const char* word, size_t n, const char* what) { return n == strlen(what) && memcmp(word, what, n) == 0; }

/* transports leaves out of the list of transports what the variables turn off, and adds what they ask for. */
static void transports(struct settings* s, const struct settings_for* with) {
  const char* before = variable("MSCCLPP_TRANSPORTS");
  if (before == NULL || *before == 0) before = with->transports;
  if (before == NULL || *before == 0) before = with->device < 0 ? "shm" : PEERS;
  const char* net = with->net && *with->net ? with->net : setting("NCCL_NET");
  int socket = net && strcasecmp(net, "Socket") == 0, adapters = net && strcasecmp(net, "IB") == 0;
  int no_shm = on("NCCL_SHM_DISABLE"), no_peers = no_shm && on("NCCL_P2P_DISABLE");
  int no_adapters = socket || on("NCCL_IB_DISABLE"), has_tcp = 0, has_adapters = 0;
  char list[TEXT] = "";
  size_t at = 0;
  for (const char* p = before; *p;) {
    size_t n = strcspn(p, ",");
    int out = (no_adapters && network_of_adapters(p, n)) || (adapters && word_is(p, n, "tcp")) ||
              (with->device < 0 && no_shm && word_is(p, n, "shm")) || (no_peers && word_is(p, n, PEERS));
    if (!out && at + n + 12 < sizeof list) {
      at += (size_t)snprintf(list + at, sizeof list - at, "%s%.*s", at ? "," : "", (int)n, p);
      has_tcp |= word_is(p, n, "tcp");
      has_adapters |= network_of_adapters(p, n);
    }
    p += n + (p[n] == ',');
  }
  if (adapters && !has_adapters && !no_adapters) at += (size_t)snprintf(list + at, sizeof list - at, "%sib-host", at ? "," : "");
  if ((socket && !has_tcp) || at == 0) snprintf(list + at, sizeof list - at, "%stcp", at ? "," : "");
  if (strcmp(list, before) != 0) put(&s->set, "transports", list, "configuration"); /* with the own variable in it */
  snprintf(s->transports, sizeof s->transports, "%s", list);
}

/* used reports whether a transport is in the list: options of others would be refused. */
static int used(const struct settings* s, const char* transport) {
  for (const char* p = s->transports; *p;) {
    size_t n = strcspn(p, ",");
    if (word_is(p, n, transport)) return 1;
    p += n + (p[n] == ',');
  }
  return 0;
}

static void between_devices(struct settings* s) {
  const char* level = setting("NCCL_P2P_LEVEL");
  if (on("NCCL_P2P_DISABLE") || (level && (strcmp(level, "LOC") == 0 || strcmp(level, "0") == 0)))
    add(s, "gpu_memory", "host");
  else if (level && strcasecmp(level, "NVL") == 0 && used(s, "cudaipc"))
    add(s, "transport.cudaipc.require_nvlink", "true");
  if (off("NCCL_MNNVL_ENABLE") && used(s, "cudaipc")) add(s, "transport.cudaipc.fabric", "false");
}

/* ---- the networks ---- */

/* family_of returns the family of addresses that a variable names, or NULL. */
static const char* family_of(const char* name) {
  const char* v = setting(name);
  if (v == NULL) return NULL;
  return strcmp(v, "AF_INET") == 0 ? "inet" : strcmp(v, "AF_INET6") == 0 ? "inet6" : NULL;
}

static void interfaces(struct settings* s) {
  struct interface_address found;
  const char *oob = setting("NCCL_OOB_NET_IFNAME"), *list = setting("NCCL_SOCKET_IFNAME"), *family = family_of("NCCL_SOCKET_FAMILY");
  int given = list && *list;
  if ((given || (oob && *oob)) && interfaces_find(&found, 1) == 1) add(s, "bootstrap.interface", found.name);
  if (given && used(s, "tcp") && interfaces_in(list, &found, 1) == 1) add(s, "transport.tcp.interface", found.name);
  if (family) add(s, "bootstrap.family", family);
  if (family && used(s, "tcp")) add(s, "transport.tcp.family", family);
}

static void add_ib(struct settings* s, const char* key, const char* value) {
  static const char* const transports[] = {"ib-host", "ib-nonatomic"};
  char full[64];
  for (size_t i = 0; i < 2; i++) {
    if (!used(s, transports[i])) continue;
    snprintf(full, sizeof full, "transport.%s.%s", transports[i], key);
    add(s, full, value);
  }
}

/* Variables that are numbers of the transports for adapters, with the values that these allow. */
static const struct {
  const char *variable, *key;
  long low, high;
} numbers[] = {
    {"NCCL_IB_GID_INDEX", "gid_index", -1, 65535},   {"NCCL_IB_TIMEOUT", "ack_timeout", 1, 31},
    {"NCCL_IB_RETRY_CNT", "retries", 0, 6},          {"NCCL_IB_SL", "service_level", 0, 15},
    {"NCCL_IB_TC", "traffic_class", 0, 255},         {"NCCL_IB_QPS_PER_CONNECTION", "queue_pairs", 1, 64},
};

static void adapters(struct settings* s) {
  enum { UNSET = -1000000 };
  const char *list = setting("NCCL_IB_HCA"), *level = setting("NCCL_NET_GDR_LEVEL");
  const char *family = family_of("NCCL_IB_ADDR_FAMILY"), *range = setting("NCCL_IB_ADDR_RANGE");
  char text[TEXT];
  int port;
  if (list && *list) {
    adapters_named(list, "/sys/class/infiniband", text, sizeof text, &port);
    if (*text) add_ib(s, "devices", text);
    snprintf(text, sizeof text, "%d", port);
    if (port > 0) add_ib(s, "port", text);
  }
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    long n = setting_number(numbers[i].variable, UNSET);
    if (n == UNSET) continue;
    n = n < numbers[i].low ? numbers[i].low : n > numbers[i].high ? numbers[i].high : n;
    snprintf(text, sizeof text, "%ld", n);
    add_ib(s, numbers[i].key, text);
  }
  if (family) add_ib(s, "gid_family", family);
  if (range && *range) add_ib(s, "gid_range", range);
  if (off("NCCL_DMABUF_ENABLE") || (level && (strcmp(level, "LOC") == 0 || strcmp(level, "0") == 0))) add_ib(s, "gpu_direct", "false");
}

/* ---- checks ---- */

static void checks(struct settings* s) {
  otherwise(s, "check.overlap", "false"); /* NCCL leaves undefined what is sent from a buffer that is received into */
  if (is("NCCL_CHECK_MODE", "DEBUG_GLOBAL"))
    add(s, "check.signatures", "always");
  else if (on("NCCL_CHECKS_DISABLE"))
    add(s, "check.signatures", "never");
}

void settings_read(struct settings* s, const struct settings_for* with) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, say_variables);
  *s = (struct settings){0};
  char device[32];
  snprintf(device, sizeof device, with->device < 0 ? "host" : DEVICE_FORMAT, with->device);
  put(&s->set, "device", device, "configuration"); /* the one that was current at the call, whatever the configuration says of programs of its own */
  otherwise(s, "bootstrap.timeout", "30m"); /* NCCL waits for ranks that come late */
  otherwise(s, "collectives.preload", "true"); /* any call may be captured */
  checks(s);
  transports(s, with); /* first: it says whose options count */
  interfaces(s);
  if (with->device >= 0) between_devices(s);
  adapters(s);
  if (with->blocks > 0) add_number(s, "comm.max_blocks", with->blocks);
}

static void drop(struct settings_list* l) {
  for (size_t i = 0; i < l->count; i++) free(l->texts[i]);
  free(l->texts);
}

void settings_free(struct settings* s) {
  drop(&s->set);
  drop(&s->defaults);
  *s = (struct settings){0};
}
