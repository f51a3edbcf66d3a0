// The collectives that move bytes of whatever type, over memory channels.
#include "move_family.h"
#include "switch_move_family.h"
