// All-reduce, reduce-scatter and reduce over memory and switch channels, compiled
// once for each element type.
#include "lamport_family.h"
#include "reduce_family.h"
#include "switch_family.h"
