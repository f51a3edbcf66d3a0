/* The other NCCL, of the file that MSCCLPP_NCCL_LIB_PATH names. */
#pragma once

#include "../nccl.h"

/* Functions without which there is no fallback, and those of later versions, which may be missing. */
#define OTHER_NEEDED(F)                                                                                       \
  F(GetVersion) F(GetErrorString) F(GetUniqueId) F(CommInitRank) F(CommDestroy) F(CommAbort) F(CommGetAsyncError) \
  F(GroupStart) F(GroupEnd)
#define OTHER_LATER(F)                                                                                          \
  F(GetLastError) F(CommInitRankConfig) F(CommFinalize) F(CommRegister) F(CommDeregister) F(RedOpCreatePreMulSum) \
  F(RedOpDestroy) F(AllReduce) F(AllGather) F(ReduceScatter) F(Broadcast) F(Reduce) F(AlltoAll) F(Gather)       \
  F(Scatter) F(Send) F(Recv)

struct other {
#define F(name) __typeof__(nccl##name)* name;
  OTHER_NEEDED(F)
  OTHER_LATER(F)
#undef F
  unsigned kinds;    /* of operations that it performs: a bit for each door_kind */
  int version;
  char wrong[512];   /* why there is none although one was asked for; "" if all is well */
};

/* other_open returns the library, which is opened at the first call; NULL without a fallback. */
const struct other* other_open(void);

/* other_names lists the operations that kinds has, with commas. */
void other_names(unsigned kinds, char* text, size_t size);
