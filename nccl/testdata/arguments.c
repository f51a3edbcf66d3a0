/* What is refused without a communicator, with the code and a part of the text; one rank. */
#include <limits.h>
#include <stdint.h>

#include <dirent.h>
#include <sched.h>

#include "client.h"

/* named reports whether a thread of this process has a name. */
static int named(const char* name) {
  DIR* tasks = opendir("/proc/self/task");
  int found = 0;
  EXPECT(tasks != NULL);
  for (struct dirent* e; (e = readdir(tasks)) != NULL;) {
    char path[300], text[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
    FILE* f = fopen(path, "r");
    if (f == NULL) continue; /* "..", or a thread that has ended */
    if (fgets(text, sizeof text, f)) text[strcspn(text, "\n")] = 0;
    fclose(f);
    found |= strcmp(text, name) == 0;
  }
  closedir(tasks);
  return found;
}

int main(void) {
  place();
  ncclComm_t comm = (ncclComm_t)1;
  int n;

  /* texts that scripts look for */
  EXPECT(strcmp(ncclGetErrorString(ncclSuccess), "no error") == 0);
  EXPECT(strcmp(ncclGetErrorString(ncclInvalidArgument), "invalid argument (run with NCCL_DEBUG=WARN for details)") == 0);
  EXPECT(strcmp(ncclGetErrorString(ncclInvalidUsage), "invalid usage (run with NCCL_DEBUG=WARN for details)") == 0);
  EXPECT(strcmp(ncclGetErrorString(ncclRemoteError), "remote process exited or there was a network error") == 0);
  EXPECT(strcmp(ncclGetErrorString((ncclResult_t)99), "unknown result code") == 0);

  NCCL(ncclGetVersion(&n));
  EXPECT(n == 22809);
  FAILS(ncclGetVersion(NULL), ncclInvalidArgument, "version argument is NULL");
  FAILS(ncclGetUniqueId(NULL), ncclInvalidArgument, "out argument is NULL");

  /* threads: the one that an id leads to */
  if (getenv("NCCL_SET_THREAD_NAME"))
    while (!named("NCCL Bootstrap")) sched_yield();
  else
    EXPECT(!named("NCCL Bootstrap"));

  /* places */
  FAILS(ncclCommInitRank(NULL, 1, id, 0), ncclInvalidArgument, "comm argument is NULL");
  FAILS(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument, "Invalid rank requested : 0/0");
  EXPECT(comm == NULL);
  FAILS(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument, "Invalid rank requested : 2/2");
  FAILS(ncclCommInitRank(&comm, 2, id, -1), ncclInvalidArgument, "Invalid rank requested : -1/2");
  ncclUniqueId bad = id;
  bad.internal[9] ^= 1;
  FAILS(ncclCommInitRank(&comm, 1, bad, 0), ncclInvalidArgument, "checksum");
  memset(&bad, 7, sizeof bad);
  FAILS(ncclCommInitRank(&comm, 1, bad, 0), ncclInvalidArgument, "expected an id");
  FAILS(ncclCommInitRankScalable(&comm, 2, 0, 3, &id, NULL), ncclInvalidArgument, "3 ids for 2 ranks");
  ncclUniqueId ids[] = {id, id};
  setenv("NCCL_COMM_ID", "127.0.0.1:1", 1);
  FAILS(ncclCommInitRankScalable(&comm, 2, 0, 2, ids, NULL), ncclInvalidArgument, "NCCL_COMM_ID cannot be used with more than one");
  setenv("NCCL_COMM_ID", "", 1); /* as if it were not set */
  FAILS(ncclCommInitRankScalable(&comm, 2, -1, 2, ids, NULL), ncclInvalidArgument, "Invalid rank requested : -1/2");
  unsetenv("NCCL_COMM_ID");
  FAILS(ncclCommInitAll(NULL, 1, NULL), ncclInvalidArgument, "comms argument is NULL");
  FAILS(ncclCommInitAll(&comm, -1, NULL), ncclInvalidArgument, "invalid device count");

  /* configurations */
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.magic = 1;
  FAILS(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument, "not initialized via NCCL_CONFIG_INITIALIZER");
  config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
  config.blocking = 2;
  FAILS(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument, "blocking attribute value 2");
  config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
  config.minCTAs = 8;
  config.maxCTAs = 4;
  FAILS(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument, "8/4");
  config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
  config.size = 4;
  FAILS(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument, "ncclConfig_t of 4 bytes");

  /* handles */
  ncclResult_t state;
  FAILS(ncclCommCount(NULL, &n), ncclInvalidArgument, "comm argument is NULL");
  FAILS(ncclCommCount((ncclComm_t)&n, &n), ncclInvalidArgument, "corrupted comm object");
  FAILS(ncclAllReduce(&n, &n, 1, ncclInt32, ncclSum, NULL, NULL), ncclInvalidArgument, "comm argument is NULL");
  FAILS(ncclCommGetAsyncError(NULL, &state), ncclInvalidArgument, "comm argument is NULL");
  NCCL(ncclCommDestroy(NULL));
  NCCL(ncclCommAbort(NULL));
  NCCL(ncclCommFinalize(NULL));
  NCCL(ncclMemFree(NULL));

  /* groups */
  FAILS(ncclGroupEnd(), ncclInvalidUsage, "not in a group");
  NCCL(ncclGroupStart());
  NCCL(ncclGroupEnd());
  NCCL(ncclGroupStart());
  FAILS(ncclCommInitRank(&comm, 2, id, 7), ncclInvalidArgument, "Invalid rank");
  NCCL(ncclGroupStart());
  NCCL(ncclGroupEnd());
  EXPECT(ncclGroupEnd() == ncclInvalidArgument); /* the error marks the group */
  NCCL(ncclGroupStart());
  NCCL(ncclGroupEnd()); /* and no other */

  /* memory of the host */
  char* p;
  NCCL(ncclMemAlloc((void**)&p, 1 << 20));
  memset(p, 1, 1 << 20);
  FAILS(ncclMemFree(p + 64), ncclInvalidArgument, "expected memory that ncclMemAlloc has given");
  NCCL(ncclMemFree(p));
  FAILS(ncclMemFree(p), ncclInvalidArgument, "expected memory that ncclMemAlloc has given");
  FAILS(ncclMemFree((void*)1), ncclInvalidArgument, "expected memory that ncclMemAlloc has given");
  FAILS(ncclMemAlloc(NULL, 1), ncclInvalidArgument, "ptr argument is NULL");

  /* a communicator of one rank */
  NCCL(ncclCommInitRank(&comm, 1, id, 0));
  float in[4] = {1, 2, 3, 4}, out[4] = {0};
  NCCL(ncclAllReduce(in, out, 4, ncclFloat32, ncclSum, comm, NULL));
  EXPECT(memcmp(in, out, sizeof in) == 0);
  NCCL(ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, comm, NULL));
  FAILS(ncclAllReduce(NULL, out, 4, ncclFloat32, ncclSum, comm, NULL), ncclInvalidArgument, "sendbuff argument is NULL");
  FAILS(ncclAllReduce(in, NULL, 4, ncclFloat32, ncclSum, comm, NULL), ncclInvalidArgument, "recvbuff argument is NULL");
  FAILS(ncclAllReduce(in, out, 4, (ncclDataType_t)99, ncclSum, comm, NULL), ncclInvalidArgument, "invalid type 99");
  FAILS(ncclAllReduce(in, out, 4, ncclFloat32, (ncclRedOp_t)77, comm, NULL), ncclInvalidArgument, "operator 77");
  FAILS(ncclBroadcast(in, out, 4, ncclFloat32, 1, comm, NULL), ncclInvalidArgument, "invalid root 1");
  FAILS(ncclSend(in, 4, ncclFloat32, -1, comm, NULL), ncclInvalidArgument, "invalid peer -1");
  FAILS(ncclRedOpDestroy(ncclSum, comm), ncclInvalidArgument, "builtin");
  ncclRedOp_t op;
  float scale = 3;
  NCCL(ncclRedOpCreatePreMulSum(&op, &scale, ncclFloat32, ncclScalarHostImmediate, comm));
  EXPECT(op >= ncclNumOps);
  scale = 100; /* the value was read */
  NCCL(ncclAllReduce(in, out, 4, ncclFloat32, op, comm, NULL));
  EXPECT(out[3] == 12);
  FAILS(ncclAllReduce(in, out, 1, ncclFloat64, op, comm, NULL), ncclInvalidArgument, "ncclFloat32");
  NCCL(ncclGroupStart());
  NCCL(ncclAllReduce(in, out, 4, ncclFloat32, op, comm, NULL));
  NCCL(ncclRedOpDestroy(op, comm)); /* the group has its value */
  NCCL(ncclGroupEnd());
  EXPECT(out[3] == 12);
  FAILS(ncclRedOpDestroy(op, comm), ncclInvalidArgument, "unknown");
  scale = 0;
  NCCL(ncclRedOpCreatePreMulSum(&op, &scale, ncclFloat32, ncclScalarHostImmediate, comm));
  NCCL(ncclAllReduce(in, out, 4, ncclFloat32, op, comm, NULL));
  EXPECT(out[0] == 0 && out[3] == 0);
  NCCL(ncclRedOpDestroy(op, comm));
  for (int residence = 0; residence < 2; residence++) { /* a number that no double holds */
    uint64_t odd = ((uint64_t)1 << 63) + 1, x = 3, y = 0;
    NCCL(ncclRedOpCreatePreMulSum(&op, &odd, ncclUint64, (ncclScalarResidence_t)residence, comm));
    NCCL(ncclReduceScatter(&x, &y, 1, ncclUint64, op, comm, NULL));
    EXPECT(y == 3 * odd);
    NCCL(ncclRedOpDestroy(op, comm));
  }

  void* handle;
  NCCL(ncclCommRegister(comm, in, sizeof in, &handle));
  NCCL(ncclCommDeregister(comm, handle));
  NCCL(ncclCommDeregister(comm, NULL));
  ncclWindow_t window = (ncclWindow_t)1;
  NCCL(ncclCommWindowRegister(comm, in, sizeof in, &window, NCCL_WIN_COLL_SYMMETRIC));
  EXPECT(window == NULL);
  NCCL(ncclCommWindowDeregister(comm, NULL));
  FAILS(ncclCommWindowRegister(comm, NULL, 16, &window, 0), ncclInvalidArgument, "expected a buffer");

  NCCL(ncclGroupStart());
  ncclSimInfo_t sim = NCCL_SIM_INFO_INITIALIZER;
  out[3] = 0;
  NCCL(ncclAllReduce(in, out, 4, ncclFloat32, ncclSum, comm, NULL));
  NCCL(ncclGroupSimulateEnd(&sim));
  EXPECT(out[3] == 0); /* nothing was launched */

  NCCL(ncclCommGetAsyncError(comm, &state));
  EXPECT(state == ncclSuccess);
  FAILS(ncclCommRevoke(comm, 5), ncclInvalidArgument, "flags");
  NCCL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
  FAILS(ncclCommRevoke(comm, 0), ncclInvalidArgument, "revoked before");
  FAILS(ncclAllReduce(in, out, 4, ncclFloat32, ncclSum, comm, NULL), ncclInvalidUsage, "was revoked");
  FAILS(ncclCommFinalize(comm), ncclInvalidArgument, "was revoked");
  NCCL(ncclCommDestroy(comm));
  FAILS(ncclCommDestroy(comm), ncclInvalidArgument, "was destroyed");
  FAILS(ncclAllReduce(in, out, 4, ncclFloat32, ncclSum, comm, NULL), ncclInvalidArgument, "was destroyed");

  /* an id serves one communicator, so this one is new */
  NCCL(ncclGetUniqueId(&id));
  NCCL(ncclCommInitRank(&comm, 1, id, 0));
  NCCL(ncclCommFinalize(comm));
  FAILS(ncclCommFinalize(comm), ncclInvalidArgument, "finalized before");
  FAILS(ncclAllReduce(in, out, 4, ncclFloat32, ncclSum, comm, NULL), ncclInvalidUsage, "was finalized");
  NCCL(ncclCommDestroy(comm));

  /* functions that exist, and are refused */
  ncclResult_t refused(void) __asm__("ncclCommSuspend");
  FAILS(refused(), ncclInvalidUsage, "not supported");
  printf("ok\n");
  return 0;
}
