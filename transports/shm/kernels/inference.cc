// The kernels for inference, compiled once for each element type.
#include "norm_family.h"
