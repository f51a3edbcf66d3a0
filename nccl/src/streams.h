/* A group whose calls of one communicator are on several streams: all streams wait for all, and the launch is one. */
#pragma once

#include "door.h"

/* streams_check refuses a group of which some streams are captured and others are not. */
ncclResult_t streams_check(int device, const struct door_call* calls, size_t n, int* captured);

/* streams_join puts the calls on the stream of the first, which waits for the others; streams_part, after the launch, has
 * the others wait for it. others has room for n, and is what streams_part needs. */
ncclResult_t streams_join(int device, struct door_call* calls, size_t n, cudaStream_t* others, size_t* count);
ncclResult_t streams_part(int device, const struct door_call* calls, const cudaStream_t* others, size_t count);
