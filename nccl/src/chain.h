/* NCCL_LAUNCH_ORDER_IMPLICIT: calls of all communicators of a device are carried out in the order in which the program makes them. */
#pragma once

#include "comm.h"

/* chain_wanted reports whether the user asks for it on a device. */
int chain_wanted(int device);

/* chain_begin has the stream of a call wait for the last call of another communicator on the device, and chain_end is for the next
 * ones to wait for. Neither knows of captures: the graph's own order counts there. Nothing is held between the two, so that calls of
 * threads that run at the same time have no order. */
ncclResult_t chain_begin(ncclComm_t comm, cudaStream_t stream);
ncclResult_t chain_end(ncclComm_t comm, cudaStream_t stream);
