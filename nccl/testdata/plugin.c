/* A plugin is killed under a communicator of two ranks of this process. */
#include <ctype.h>
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "client.h"

/* kill_plugin ends one process that this one has started. */
static int kill_plugin(void) {
  DIR* d = opendir("/proc");
  int killed = 0;
  EXPECT(d != NULL);
  for (struct dirent* e; !killed && (e = readdir(d)) != NULL;) {
    char path[300], name[64] = "";
    int pid = atoi(e->d_name), parent = 0;
    if (!isdigit((unsigned char)e->d_name[0])) continue;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE* f = fopen(path, "r");
    if (f == NULL) continue;
    if (fscanf(f, "%*d (%63[^)]) %*c %d", name, &parent) == 2 && parent == getpid() && strncmp(name, "mscclpp-transp", 14) == 0)
      killed = kill(pid, SIGKILL) == 0;
    fclose(f);
  }
  closedir(d);
  return killed;
}

int main(void) {
  ncclComm_t comms[2];
  ncclResult_t r = ncclSuccess, state = ncclSuccess;
  NCCL(ncclCommInitAll(comms, 2, (int[]){0, 1}));
  EXPECT(kill_plugin());
  while (r == ncclSuccess) {
    int x[2] = {1, 1};
    NCCL(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
      r = ncclAllReduce(&x[i], &x[i], 1, ncclInt32, ncclSum, comms[i], NULL);
      if (r != ncclSuccess) break;
    }
    ncclResult_t end = ncclGroupEnd();
    if (r == ncclSuccess) r = end;
    sched_yield();
  }
  printf("%d %s\n", (int)r, ncclGetLastError(NULL));
  for (int i = 0; i < 2; i++) {
    while (state == ncclSuccess) NCCL(ncclCommGetAsyncError(comms[i], &state)); /* both learn of it */
    state = ncclSuccess;
    NCCL(ncclCommAbort(comms[i]));
  }
  return 0;
}
