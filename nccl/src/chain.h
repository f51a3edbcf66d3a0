/* NCCL_LAUNCH_ORDER_IMPLICIT, and launchOrderImplicit of a configuration: calls of all communicators of a device that have it are carried out in the order in which the program makes them. */
#pragma once

#include "comm.h"

/* chain_begin has the stream of a call wait for all earlier calls of other communicators on the device, and chain_end is for the next
 * ones to wait for; *behind goes from one to the other. Neither knows of captures: the graph's own order counts there. Nothing is held
 * between the two: calls of threads that run at the same time have no order, but later ones wait for all of them. */
ncclResult_t chain_begin(ncclComm_t comm, cudaStream_t stream, uint64_t* behind);
ncclResult_t chain_end(ncclComm_t comm, cudaStream_t stream, uint64_t behind);
