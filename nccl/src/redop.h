/* Operations that programs make: sums whose inputs are multiplied first. */
#pragma once

#include "comm.h"
#include "door.h"

/* redop_resolve checks an operation for a call and fills in op and scalar of it. */
ncclResult_t redop_resolve(ncclComm_t comm, const char* function, ncclRedOp_t op, ncclDataType_t type,
                           struct door_call* call);
