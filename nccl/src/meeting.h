/* The meeting place of an id: a thread of the process that made it. This process need not be a
 * rank. Rank 0 tells the thread where it listens, and the thread tells the others, once they have
 * shown the id's token. The ranks then prove the id's secret to each other; the thread never
 * sees it on the network. */
#pragma once

#include "../nccl.h"

/* meeting_create makes an id and, with the first one, the thread. */
ncclResult_t meeting_create(ncclUniqueId* id);

/* meeting_at makes the id that stands for an address of NCCL_COMM_ID. There is no thread: rank 0
 * listens at the address itself. */
ncclResult_t meeting_at(const char* address, ncclUniqueId* id);

/* meeting_check reports whether the bytes are an id of this library; why not is in *text. */
int meeting_check(const ncclUniqueId* id, const char** text);

/* meeting_forget drops an id that no rank will ask about: its communicator has one rank. */
void meeting_forget(const ncclUniqueId* id);

/* In a forked child there is no thread, and no id. */
void meeting_in_child(void);
