/* The fallback: chosen operations are performed by another NCCL, which a file holds. Each communicator has a
 * shadow there, which is made with it and ends with it. It is off unless variables ask for it. */
#pragma once

#include "comm.h"
#include "door.h"

/* fallback_describe adds to a text, of size bytes, by what this rank's operations are performed, so that
 * ranks which differ are found when they meet. Without a fallback it adds nothing. */
void fallback_describe(char* text, size_t size);

/* fallback_join makes the shadow of a communicator whose ranks have met. Collective. */
ncclResult_t fallback_join(ncclComm_t comm);

/* fallback_call and fallback_group perform calls of a communicator that has a shadow: each by the library that is to perform it. */
ncclResult_t fallback_call(ncclComm_t comm, void* inner, const struct door_call* call);
ncclResult_t fallback_group(ncclComm_t comm, void* inner, const struct door_call* calls, size_t n);

/* fallback_failed is what the shadow says of its health; Success without one. It does not wait. */
ncclResult_t fallback_failed(ncclComm_t comm);

/* fallback_register gives memory to the shadow as well, and fallback_deregister takes it back. */
ncclResult_t fallback_register(ncclComm_t comm, void* buff, size_t size, void** handle);
void fallback_deregister(ncclComm_t comm, void* handle);

/* The shadow's share of a communicator's end. After an abort, or a destroy, it has none. */
ncclResult_t fallback_finalize(ncclComm_t comm);
ncclResult_t fallback_destroy(ncclComm_t comm);
void fallback_abort(ncclComm_t comm);
