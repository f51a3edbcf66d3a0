/* RDMA devices as NCCL_IB_HCA names them. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interfaces.h"
#include "settings.h"

enum { DEVICES = 64 };

static int by_name(const void* a, const void* b) { return strcmp(a, b); }

static int devices_in(const char* folder, char names[DEVICES][64]) {
  int n = 0;
  DIR* d = opendir(folder);
  for (struct dirent* e; d && n < DEVICES && (e = readdir(d)) != NULL;)
    if (e->d_name[0] != '.' && strlen(e->d_name) < 64) strcpy(names[n++], e->d_name);
  if (d) closedir(d);
  qsort(names, (size_t)n, sizeof *names, by_name);
  return n;
}

static void append(char* out, size_t room, const char* name, size_t n) {
  size_t at = strlen(out);
  snprintf(out + at, room - at, "%s%.*s", at ? "," : "", (int)n, name);
}

void adapters_named(const char* list, const char* folder, char* out, size_t room, int* port) {
  char names[DEVICES][64];
  int n = devices_in(folder, names);
  *out = 0;
  const char* colon = *list == '^' ? NULL : strchr(list, ':');
  *port = colon ? atoi(colon + 1) : 0;
  for (int i = 0; i < n; i++)
    if (interface_named(list, names[i])) append(out, room, names[i], strlen(names[i]));
  if (*out || *list == '^') return;
  /* None is there: the names as they stand, so that the transport says which it has not found. */
  for (const char* p = list + (*list == '='); *p;) {
    size_t whole = strcspn(p, ","), name = strcspn(p, ",:");
    if (name) append(out, room, p, name);
    p += whole + (p[whole] == ',');
  }
}
