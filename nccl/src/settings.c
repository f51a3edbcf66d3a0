#define _GNU_SOURCE
#include "settings.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <fnmatch.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
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

static int present(const char* name) {
  const char* v = variable(name);
  return v && *v; /* the configuration passes over those that are empty */
}

/* Variables of this project that set a key under another name, as flatNames of framework/config has them. * stands for the transports for adapters. */
static const struct {
  const char *variable, *key;
} other_names[] = {
    {"MSCCLPP_SOCKET_IFNAME", "bootstrap.interface"},  {"MSCCLPP_SOCKET_FAMILY", "bootstrap.family"},
    {"MSCCLPP_HCA_DEVICES", "transport.ib-*.devices"}, {"MSCCLPP_IB_GID_INDEX", "transport.ib-*.gid_index"},
    {"MSCCLPP_FORCE_DISABLE_GDR", "transport.ib-*.gpu_direct"},
};

/* own reports whether a variable of this project for a key is set: the key's own, as in EnvName of framework/config, or another. */
static int own(const char* key) {
  for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++)
    if (fnmatch(other_names[i].key, key, 0) == 0 && present(other_names[i].variable)) return 1;
  char name[96] = "MSCCLPP_";
  size_t n = strlen(name);
  for (; *key && n + 3 < sizeof name; key++) {
    if (*key == '.') name[n++] = '_';
    name[n++] = *key == '.' || *key == '-' ? '_' : (char)toupper((unsigned char)*key);
  }
  name[n] = 0;
  return present(name);
}

/* add sets what a variable of NCCL, or the program, asks for: it counts before files of the configuration, and behind this project's variables
 * for the key, where it returns 0. */
static int add(struct settings* s, const char* key, const char* value) {
  if (own(key)) return 0;
  put(&s->set, key, value, "configuration");
  return 1;
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

/* add_ib adds for the transports for adapters that are used, and, where that counts, more of the same variable of NCCL. */
static void add_ib(struct settings* s, const char* key, const char* value, const char* more, const char* more_value) {
  static const char* const transports[] = {"ib-host", "ib-nonatomic"};
  char full[64];
  for (size_t i = 0; i < 2; i++) {
    if (!used(s, transports[i])) continue;
    snprintf(full, sizeof full, "transport.%s.%s", transports[i], key);
    if (!add(s, full, value) || more == NULL) continue;
    snprintf(full, sizeof full, "transport.%s.%s", transports[i], more);
    add(s, full, more_value);
  }
}

/* Variables that are numbers of the transports for adapters, with the values that these allow. */
static const struct {
  const char *variable, *key;
  long low, high;
} numbers[] = {
    {"NCCL_IB_GID_INDEX", "gid_index", -1, 255},     {"NCCL_IB_TIMEOUT", "ack_timeout", 1, 31},
    {"NCCL_IB_RETRY_CNT", "retries", 0, 6},          {"NCCL_IB_SL", "service_level", 0, 15},
    {"NCCL_IB_TC", "traffic_class", 0, 255},         {"NCCL_IB_QPS_PER_CONNECTION", "queue_pairs", 1, 64},
};

/* range_fits says whether NCCL_IB_ADDR_RANGE is a network of a family, as NCCL wants it. */
static int range_fits(const char* range, int family) {
  struct in6_addr a;
  char address[INET6_ADDRSTRLEN], *end;
  const char* slash = strchr(range, '/');
  if (slash == NULL || (size_t)(slash - range) >= sizeof address || !isdigit((unsigned char)slash[1])) return 0;
  snprintf(address, sizeof address, "%.*s", (int)(slash - range), range);
  long bits = strtol(slash + 1, &end, 10);
  if (*end || end - slash > 4 || (slash[1] == '0' && slash[2]) || bits > (family == AF_INET ? 32 : 128)) return 0;
  return inet_pton(family, address, &a) == 1 && !(family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a));
}

/* addresses chooses among those of a port on RoCE. The transports prefer IPv4, NCCL's default, by themselves. */
static void addresses(struct settings* s) {
  static atomic_int said;
  const char *named = family_of("NCCL_IB_ADDR_FAMILY"), *range = setting("NCCL_IB_ADDR_RANGE");
  int six = named && strcmp(named, "inet6") == 0;
  if (six) add_ib(s, "gid_family", named, NULL, NULL);
  if (range == NULL || *range == 0) return;
  if (range_fits(range, six ? AF_INET6 : AF_INET))
    add_ib(s, "gid_range", range, NULL, NULL);
  else if (!atomic_exchange(&said, 1))
    log_warning("NCCL_IB_ADDR_RANGE=%s does not count: expected a network of NCCL_IB_ADDR_FAMILY, %s", range, six ? "AF_INET6, such as fd00::/8" : "AF_INET, such as 10.1.0.0/16");
}

static void adapters(struct settings* s) {
  enum { UNSET = -1000000 };
  const char *list = setting("NCCL_IB_HCA"), *level = setting("NCCL_NET_GDR_LEVEL");
  char text[TEXT], number[24];
  int port;
  if (list && *list) {
    adapters_named(list, "/sys/class/infiniband", text, sizeof text, &port);
    snprintf(number, sizeof number, "%d", port);
    if (*text) add_ib(s, "devices", text, port > 0 ? "port" : NULL, number);
  }
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    long n = setting_number(numbers[i].variable, UNSET);
    if (n == UNSET) continue;
    n = n < numbers[i].low ? numbers[i].low : n > numbers[i].high ? numbers[i].high : n;
    snprintf(number, sizeof number, "%ld", n);
    add_ib(s, numbers[i].key, number, NULL, NULL);
  }
  addresses(s);
  if (off("NCCL_DMABUF_ENABLE") || (level && (strcmp(level, "LOC") == 0 || strcmp(level, "0") == 0))) add_ib(s, "gpu_direct", "false", NULL, NULL);
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
