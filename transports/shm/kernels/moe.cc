// The kernels for experts, compiled once for each element type.
#include "moe_family.h"
