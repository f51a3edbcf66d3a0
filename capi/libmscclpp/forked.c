/* What a forked child gives up. It has the descriptors of its parent, and none of the threads that serve them: while it
 * holds the sockets, the death of the parent is not seen by other ranks, nor by its plugins.
 *
 * The table of these descriptors is the kernel's: the runtime polls all that it opens for connections and pipes with one
 * epoll instance, and /proc tells what that has, by number, inode and device. The child closes those whose number still
 * stands for the same file, so what the program has put in the place of one stays open. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "internal.h"

static int poller = -1;

void forked_poller(int fd) { __atomic_store_n(&poller, fd, __ATOMIC_RELEASE); }

/* close_same closes a descriptor if it is that of a line such as
 * "tfd:        4 events:       19 data:                4  pos:0 ino:80e2c8 sdev:9". */
static void close_same(const char *line) {
  struct stat s;
  const char *ino = strstr(line, " ino:"), *dev = strstr(line, " sdev:");
  if (strncmp(line, "tfd:", 4) != 0 || ino == NULL || dev == NULL) return;
  int fd = (int)strtol(line + 4, NULL, 10);
  if (fstat(fd, &s) != 0) return;
  unsigned long device = strtoul(dev + 6, NULL, 16);
  if (s.st_ino == strtoul(ino + 5, NULL, 16) && ((unsigned long)major(s.st_dev) << 20 | minor(s.st_dev)) == device) close(fd);
}

/* Neither memory is allocated, nor a lock taken: other threads of the parent may have held any. */
void forked_close(void) {
  int fd = __atomic_load_n(&poller, __ATOMIC_ACQUIRE);
  char path[64], text[4096];
  if (fd < 0) return;
  snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
  int info = open(path, O_RDONLY | O_CLOEXEC);
  if (info < 0) return;
  size_t have = 0;
  for (ssize_t n; (n = read(info, text + have, sizeof text - 1 - have)) > 0;) {
    have += (size_t)n;
    text[have] = 0;
    char *at = text, *end;
    for (; (end = strchr(at, '\n')) != NULL; at = end + 1) {
      *end = 0;
      close_same(at);
    }
    have -= (size_t)(at - text);
    memmove(text, at, have);
    if (have == sizeof text - 1) have = 0; /* no line is that long */
  }
  close(info);
  close(fd);
}
