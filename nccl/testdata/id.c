/* Makes ids, prints them as text, and lives until its input ends. With "fork" a child does all but
 * make the id: it must not have the listeners. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../nccl.h"

int main(int argc, char** argv) {
  int n = argc > 1 ? atoi(argv[1]) : 1;
  for (int i = 0; i < n; i++) {
    ncclUniqueId id;
    ncclResult_t r = ncclGetUniqueId(&id);
    if (r != ncclSuccess) {
      fprintf(stderr, "%s: %s\n", ncclGetErrorString(r), ncclGetLastError(NULL));
      return 1;
    }
    for (size_t b = 0; b < sizeof id.internal; b++) printf("%02x", (unsigned char)id.internal[b]);
    printf("\n");
  }
  fflush(stdout);
  pid_t child = -1;
  if (argc > 2 && strcmp(argv[2], "fork") == 0 && (child = fork()) == 0) {
    ncclUniqueId id; /* a child may make ids of its own */
    char c;
    if (ncclGetUniqueId(&id) != ncclSuccess) _exit(3);
    while (read(0, &c, 1) > 0) continue;
    _exit(0);
  }
  while (getchar() != EOF) continue;
  if (child > 0) {
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  }
  return 0;
}
