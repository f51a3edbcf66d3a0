/* Functions that exist so that programs can be linked, and answer ncclInvalidUsage with a text. The
 * number that ncclGetVersion returns keeps clients from calling those of newer versions. Their
 * arguments are not looked at; a caller's registers and stack hold them, whatever they are. */
#include "comm.h"
#include "export.h"
#include "log.h"

#define REFUSED(name, why) \
  EXPORT(ncclResult_t, name, void) { return fail(ncclInvalidUsage, "nccl" #name " : " why); }

#define DEVICE "of NCCL's device interface, windows, device communicators and barriers among GPUs that map each other's memory are supported alone"
#define NEWER "not supported: this library is NCCL 2.28"
#define ONE_SIDED "one-sided messages of NCCL 2.29 are not supported"
#define PARAMETERS "NCCL's parameters are not those of this library: see docs/nccl.md for the variables that count"

REFUSED(GinBarrierCreateRequirement, DEVICE)
REFUSED(GinInboxA2ACreateRequirement, DEVICE)
REFUSED(GinOutboxCreateRequirement, DEVICE)
REFUSED(GetMultimemDevicePointer, DEVICE)
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
EXPORT(struct team, TeamCft, ncclComm_t comm) {
  (void)comm;
  return (struct team){1, 0, 1};
}
EXPORT(struct team, TeamCftMultimem, ncclComm_t comm) {
  (void)comm;
  return (struct team){1, 0, 1};
}
