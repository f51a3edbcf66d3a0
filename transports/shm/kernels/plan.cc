// The kernel that runs execution plans, compiled once for each element type.
#include "plan_family.h"
