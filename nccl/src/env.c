#define _GNU_SOURCE
#include "env.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char** environ;

#ifndef MACHINES_FILE
#define MACHINES_FILE "/etc/nccl.conf"
#endif

/* What files say, in the order of their precedence. Read once. */
struct pair {
  struct pair* next;
  char* value;
  char name[];
};

static struct pair* of_files;
static const char* unread; /* the file that NCCL_CONF_FILE names, if it cannot be read */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void append(const char* name, size_t length, const char* value) {
  struct pair** at = &of_files;
  for (; *at; at = &(*at)->next)
    if (strlen((*at)->name) == length && memcmp((*at)->name, name, length) == 0) return; /* the first counts */
  struct pair* p = malloc(sizeof *p + length + 1);
  if (p == NULL) return;
  p->next = NULL;
  memcpy(p->name, name, length);
  p->name[length] = 0;
  p->value = strdup(value);
  *at = p;
}

/* read_file returns 0 where there is no such file, or something that is none. A device such as /dev/null is an empty one. */
static int read_file(const char* path) {
  FILE* f = fopen(path, "re");
  if (f == NULL) return 0;
  struct stat s = {0};
  char* line = NULL;
  size_t size = 0;
  ssize_t n;
  int is_file = fstat(fileno(f), &s) == 0 && S_ISREG(s.st_mode);
  if (is_file) {
    while ((n = getline(&line, &size, f)) > 0) {
      while (n > 0 && isspace((unsigned char)line[n - 1])) line[--n] = 0;
      char* at = line;
      while (isspace((unsigned char)*at)) at++;
      char* equals = strchr(at, '=');
      if (*at == '#' || equals == NULL || equals == at) continue;
      char* end = equals;
      while (end > at && isspace((unsigned char)end[-1])) end--;
      char* value = equals + 1;
      while (isspace((unsigned char)*value)) value++;
      append(at, (size_t)(end - at), value);
    }
  }
  free(line);
  fclose(f);
  return is_file || S_ISCHR(s.st_mode);
}

static void read_files(void) {
  const char* named = variable("NCCL_CONF_FILE");
  const char* home = variable("HOME");
  if (named && *named) {
    if (!read_file(named)) unread = strdup(named);
  } else if (home && *home) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/.nccl.conf", home) < (int)sizeof path) read_file(path);
  }
  read_file(MACHINES_FILE);
}

const char* setting_file_missing(void) {
  pthread_once(&once, read_files);
  return unread;
}

int setting_is(const char* name, const char* value) {
  const char* v = setting(name);
  return v != NULL && strcmp(v, value) == 0;
}

const char* variable(const char* name) { return secure_getenv(name); }

const char* setting(const char* name) {
  const char* v = variable(name);
  if (v) return v;
  pthread_once(&once, read_files);
  for (struct pair* p = of_files; p; p = p->next)
    if (strcmp(p->name, name) == 0) return p->value;
  return NULL;
}

/* found reports whether there is a file of such a name, in any form. */
static int found(const char* folder, const char* inside) {
  static const char* const forms[] = {"yaml", "yml", "toml"};
  char path[4096];
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    if (snprintf(path, sizeof path, "%s/%smscclpp/config.%s", folder, inside, forms[i]) < (int)sizeof path && access(path, F_OK) == 0) return 1;
  return 0;
}

int configuration_file(void) {
  const char *job = variable("MSCCLPP_CONFIG"), *users = variable("XDG_CONFIG_HOME"), *home = variable("HOME");
  if ((job && *job) || found("/etc", "")) return 1;
  return users && *users ? found(users, "") : home && *home && found(home, ".config/");
}

long setting_number(const char* name, long otherwise) {
  const char* v = setting(name);
  if (v == NULL || *v == 0) return otherwise;
  char* end;
  errno = 0;
  long n = strtol(v, &end, 0);
  return errno || *end ? otherwise : n;
}

void each_setting(void (*f)(const char* name, const char* value, void* with), void* with) {
  char name[128];
  for (char** e = environ; e && *e; e++) {
    const char* equals = strchr(*e, '=');
    if (equals == NULL || equals - *e >= (long)sizeof name) continue;
    memcpy(name, *e, (size_t)(equals - *e));
    name[equals - *e] = 0;
    if (variable(name)) f(name, equals + 1, with);
  }
  pthread_once(&once, read_files);
  for (struct pair* p = of_files; p; p = p->next)
    if (strncmp(p->name, "NCCL_", 5) == 0 && variable(p->name) == NULL) f(p->name, p->value, with);
}
