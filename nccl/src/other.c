#define _GNU_SOURCE
#include "other.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "door.h"
#include "env.h"
#include "log.h"

#define PATH "MSCCLPP_NCCL_LIB_PATH"
#define OPERATIONS "MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION"

/* Names of operations in lists. A message has two ends, and both have to be of one library, whatever a group adds. */
enum { MESSAGES = 1u << DOOR_SEND | 1u << DOOR_RECV };
static const struct {
  const char *name, *function;
  unsigned kinds;
} operations[] = {
    {"allreduce", "ncclAllReduce", 1u << DOOR_ALL_REDUCE}, {"allgather", "ncclAllGather", 1u << DOOR_ALL_GATHER},
    {"reducescatter", "ncclReduceScatter", 1u << DOOR_REDUCE_SCATTER}, {"broadcast", "ncclBroadcast", 1u << DOOR_BROADCAST},
    {"reduce", "ncclReduce", 1u << DOOR_REDUCE}, {"alltoall", "ncclAlltoAll", 1u << DOOR_ALL_TO_ALL},
    {"gather", "ncclGather", 1u << DOOR_GATHER}, {"scatter", "ncclScatter", 1u << DOOR_SCATTER},
    {"send", "ncclSend", MESSAGES}, {"recv", "ncclRecv", MESSAGES},
};
enum { ALL = sizeof operations / sizeof *operations };

static struct other other;
static int asked;
static pthread_once_t once = PTHREAD_ONCE_INIT;

void other_names(unsigned kinds, char* text, size_t size) {
  size_t n = 0;
  if (size) *text = 0;
  for (int i = 0; i < ALL && n < size; i++)
    if ((operations[i].kinds & kinds) == operations[i].kinds)
      n += (size_t)snprintf(text + n, size - n, "%s%s", n ? "," : "", operations[i].name);
}

#define WRONG(...) snprintf(other.wrong, sizeof other.wrong, __VA_ARGS__)

/* pick adds an operation of the list; one that the library has not is wrong unless all were asked for. */
static void pick(void* handle, int i, int all, const char* path) {
  if (dlsym(handle, operations[i].function)) {
    other.kinds |= operations[i].kinds;
  } else if (all) {
    log_info(SUB_INIT, -1, "%s has no %s: it stays with this library", path, operations[i].function);
  } else {
    WRONG(OPERATIONS " names %s, and %s, which is version %d, has no %s: expected a later version", operations[i].name, path, other.version, operations[i].function);
  }
}

static void read_list(void* handle, const char* list, const char* path) {
  while (*list && !other.wrong[0]) {
    size_t n = strcspn(list, ",");
    int all = n == 3 && strncasecmp(list, "all", n) == 0, found = all;
    for (int i = 0; i < ALL && !other.wrong[0]; i++)
      if (all || (strlen(operations[i].name) == n && strncasecmp(list, operations[i].name, n) == 0)) {
        found = 1;
        pick(handle, i, all, path);
      }
    if (!found && n > 0) {
      char names[160];
      other_names(~0u, names, sizeof names);
      WRONG(OPERATIONS " has \"%.*s\": expected all, or some of %s", (int)(n < 40 ? n : 40), list, names);
    }
    list += n + (list[n] == ',');
  }
  if (!other.kinds && !other.wrong[0]) WRONG(OPERATIONS " is \"%s\": expected operations", list);
}

/* is_this reports whether a handle is this library again, as the bare name that it has taken leads to. */
static int is_this(void* handle) {
  Dl_info theirs = {0}, own = {0};
  dladdr(dlsym(handle, "ncclGetVersion"), &theirs);
  dladdr((void*)other_open, &own);
  return theirs.dli_fbase == own.dli_fbase;
}

/* copy_file writes a copy of a file into the folder for temporary files, and returns 0 or an errno. */
static int copy_file(const char* path, char* copy, size_t size) {
  const char* folder = variable("TMPDIR");
  if ((size_t)snprintf(copy, size, "%s/mscclpp-nccl-XXXXXX", folder && *folder ? folder : "/tmp") >= size) return ENAMETOOLONG;
  int from = open(path, O_RDONLY | O_CLOEXEC), to = from < 0 ? -1 : mkostemp(copy, O_CLOEXEC), err = 0;
  if (to < 0) {
    err = errno;
    if (from >= 0) close(from);
    return err;
  }
  static char part[1 << 16];
  for (ssize_t n; (n = read(from, part, sizeof part)) != 0 && err == 0;)
    for (ssize_t done = 0, w; done < n || n < 0; done += w)
      if (n < 0 || (w = write(to, part + done, (size_t)(n - done))) < 0) {
        err = errno;
        break;
      }
  if (close(to) != 0 && err == 0) err = errno;
  close(from);
  if (err) unlink(copy);
  return err;
}

/* load opens the library such that its calls of its own functions stay in it, although this one may have been preloaded and
 * has the same names. PyTorch has opened it before, in the usual way: then a copy is opened. */
static void* load(const char* path) {
  const int deep = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
  void* before = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (before == NULL) return dlopen(path, deep);
  struct link_map* map = NULL;
  if (is_this(before) || dlsym(before, "ncclGetVersion") == NULL || dlinfo(before, RTLD_DI_LINKMAP, &map) != 0) return before;
  char copy[4096];
  int err = copy_file(map->l_name, copy, sizeof copy);
  dlclose(before);
  if (err) {
    WRONG(PATH ": %s is open already, and cannot be copied for a second time: %s: expected room in TMPDIR", path, strerror(err));
    return NULL;
  }
  void* handle = dlopen(copy, deep);
  if (handle == NULL) WRONG(PATH ": a copy of %s: %s", path, dlerror());
  unlink(copy);
  return handle;
}

static void open_other(void) {
  const char *path = setting(PATH), *list = setting(OPERATIONS), *missing = NULL;
  int has_path = path && *path, has_list = list && *list;
  if (!has_list) {
    if (has_path) log_info(SUB_INIT, -1, PATH "=%s has no effect without " OPERATIONS, path);
    return;
  }
  asked = 1;
  if (!has_path) {
    WRONG(OPERATIONS "=%.80s: expected " PATH " to name the library", list);
    return;
  }
  const char* meet = setting("NCCL_COMM_ID");
  if (meet && *meet) {
    WRONG(PATH " and NCCL_COMM_ID are both set: expected one, since both libraries would listen there");
    return;
  }
  /* Threads that it starts take none of the program's signals. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  void* handle = load(path);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (handle == NULL) {
    if (!other.wrong[0]) WRONG(PATH ": %s", dlerror());
    return;
  }
#define F(name) \
  if ((*(void**)&other.name = dlsym(handle, "nccl" #name)) == NULL && missing == NULL) missing = "nccl" #name;
  OTHER_NEEDED(F)
#undef F
#define F(name) *(void**)&other.name = dlsym(handle, "nccl" #name);
  OTHER_LATER(F)
#undef F
  if (missing) {
    WRONG(PATH ": %s has no %s: expected a library of NCCL", path, missing);
  } else if (is_this(handle)) {
    WRONG(PATH ": %s is this library itself: expected the path of another", path);
  } else if (other.GetVersion(&other.version) != ncclSuccess) {
    WRONG(PATH ": %s does not say its version", path);
  } else {
    read_list(handle, list, path);
  }
}

const struct other* other_open(void) {
  pthread_once(&once, open_other);
  return asked ? &other : NULL;
}
