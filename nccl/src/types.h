/* Element types. */
#pragma once

#include "../nccl.h"

/* type_size returns the bytes of an element, 0 for a number that is no type. */
int type_size(ncclDataType_t type);

/* type_name returns the type's name in logs. */
const char* type_name(ncclDataType_t type);
