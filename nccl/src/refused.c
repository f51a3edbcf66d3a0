/* Functions that exist so that programs can be linked, and answer ncclInvalidUsage with a text. The
 * number that ncclGetVersion returns keeps clients from calling those of newer versions. Their
 * arguments are not looked at; a caller's registers and stack hold them, whatever they are. */
#include "comm.h"
#include "export.h"
#include "log.h"

#define REFUSED(name, why) \
  EXPORT(ncclResult_t, name, void) { return fail(ncclInvalidUsage, "nccl" #name " : " why); }

#define DEVICE "the device interface of NCCL is not supported: kernels of this library's channels are the way to communicate within kernels"
#define NEWER "not supported: this library is NCCL 2.28"
#define ONE_SIDED "one-sided messages of NCCL 2.29 are not supported"
#define PARAMETERS "NCCL's parameters are not those of this library: see docs/nccl.md for the variables that count"

REFUSED(DevCommCreate, DEVICE)
REFUSED(DevCommDestroy, DEVICE)
REFUSED(LsaBarrierCreateRequirement, DEVICE)
REFUSED(GinBarrierCreateRequirement, DEVICE)
REFUSED(LLA2ACreateRequirement, DEVICE)
REFUSED(GinInboxA2ACreateRequirement, DEVICE)
REFUSED(GinOutboxCreateRequirement, DEVICE)
REFUSED(GetLsaDevicePointer, DEVICE)
REFUSED(GetPeerDevicePointer, DEVICE)
REFUSED(GetLsaMultimemDevicePointer, DEVICE)
REFUSED(GetMultimemDevicePointer, DEVICE)
REFUSED(WinGetUserPtr, DEVICE)
REFUSED(GetPeerDeviceLeInfo, DEVICE)
REFUSED(GetMultimemDeviceLeInfo, DEVICE)
REFUSED(GetCftDeviceLeInfo, DEVICE)

REFUSED(CommGetUniqueId, NEWER)
REFUSED(CommGrow, NEWER)
REFUSED(CommSuspend, NEWER)
REFUSED(CommResume, NEWER)
REFUSED(CommMemStats, NEWER)
REFUSED(CommQueryProperties, NEWER)
REFUSED(SetEncryption, NEWER)
REFUSED(AllReduceConfig, NEWER)
REFUSED(AllGatherConfig, NEWER)
REFUSED(ReduceScatterConfig, NEWER)
REFUSED(BroadcastConfig, NEWER)
REFUSED(AlltoAllConfig, NEWER)
REFUSED(GatherConfig, NEWER)
REFUSED(ScatterConfig, NEWER)
REFUSED(ReduceConfig, NEWER)

REFUSED(PutSignal, ONE_SIDED)
REFUSED(Signal, ONE_SIDED)
REFUSED(WaitSignal, ONE_SIDED)

REFUSED(ParamBind, PARAMETERS)
REFUSED(ParamGetI8, PARAMETERS)
REFUSED(ParamGetI16, PARAMETERS)
REFUSED(ParamGetI32, PARAMETERS)
REFUSED(ParamGetI64, PARAMETERS)
REFUSED(ParamGetU8, PARAMETERS)
REFUSED(ParamGetU16, PARAMETERS)
REFUSED(ParamGetU32, PARAMETERS)
REFUSED(ParamGetU64, PARAMETERS)
REFUSED(ParamGetStr, PARAMETERS)
REFUSED(ParamGet, PARAMETERS)
REFUSED(ParamGetParameter, PARAMETERS)
REFUSED(ParamGetAllParameterKeys, PARAMETERS)

EXPORT(void, ParamDumpAll, void) { fail(ncclInvalidUsage, "ncclParamDumpAll : " PARAMETERS); }

/* Teams are values, not results: a rank that is its own team of one. */
struct team {
  int ranks, rank, stride;
};
static struct team world(ncclComm_t comm) {
  if (comm_enter(comm, "ncclTeamWorld", NEED_READY) != ncclSuccess) return (struct team){0, 0, 1};
  struct team t = {comm->nranks, comm->rank, 1};
  comm_leave(comm);
  return t;
}
EXPORT(struct team, TeamWorld, ncclComm_t comm) { return world(comm); }
EXPORT(struct team, TeamLsa, ncclComm_t comm) {
  struct team t = world(comm);
  return (struct team){1, 0, t.stride};
}
EXPORT(struct team, TeamRail, ncclComm_t comm) { return world(comm); }
EXPORT(struct team, TeamCft, ncclComm_t comm) { return (struct team){1, 0, world(comm).stride}; }
EXPORT(struct team, TeamCftMultimem, ncclComm_t comm) { return (struct team){1, 0, world(comm).stride}; }
EXPORT(int, TeamRankToWorld, ncclComm_t comm, struct team team, int rank) {
  struct team w = world(comm);
  return w.rank + (rank - team.rank) * team.stride;
}
EXPORT(int, TeamRankToLsa, ncclComm_t comm, struct team team, int rank) {
  (void)comm;
  return rank == team.rank ? 0 : -1;
}
EXPORT(int, LLA2ACalcSlots, int count, int size) {
  (void)count;
  (void)size;
  return 0;
}
