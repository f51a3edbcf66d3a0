/* A profiler plugin of NCCL: a library whose functions hear of calls. NCCL_PROFILER_PLUGIN names it. Without one a communicator
 * has no profile, and nothing here is called. */
#pragma once

#include "comm.h"
#include "door.h"

/* profile_open has the plugin begin with a communicator whose ranks have met; the first one loads it. A plugin that is missing,
 * unknown or fails is a line of the log. profile_close ends it, when no call is inside any more. */
void profile_open(ncclComm_t comm);
void profile_close(ncclComm_t comm);

/* What calls tell the plugin. Events are NULL where it does not want to hear of them. */

/* profile_group begins the event of a group with a communicator, and profile_group_ends says that its end was called. */
void* profile_group(ncclComm_t comm, int depth, cudaStream_t stream);
void profile_group_ends(ncclComm_t comm, void* group);

/* profile_api begins the event of a call of the program. */
void* profile_api(ncclComm_t comm, void* group, const struct door_call* call);

/* profile_stop ends an event. */
void profile_stop(ncclComm_t comm, void* event);

/* A launch: calls of one communicator that are performed together. Their events end when the device is done with them. */
struct launch {
  void* event;
  void* group;             /* the plugin's event of that name */
  struct performed* calls; /* NULL: nobody wants to know */
};
struct launch profile_launch(ncclComm_t comm, void* group, const struct door_call* calls, size_t n);
void profile_launched(ncclComm_t comm, struct launch* l, ncclResult_t result);
