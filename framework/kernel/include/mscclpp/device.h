// Everything a kernel needs.
#ifndef MSCCLPP_DEVICE_H_
#define MSCCLPP_DEVICE_H_

#include "copy.h"
#include "fifo.h"
#include "grid.h"
#include "layout.h"
#include "line.h"
#include "memory.h"
#include "memory_channel.h"
#include "overlap.h"
#include "packet.h"
#include "port_channel.h"
#include "records.h"
#include "reduce.h"
#include "reduce_packets.h"
#include "semaphore.h"
#include "switch_channel.h"
#include "target.h"
#include "thread.h"
#include "types.h"
#include "wait.h"

#endif  // MSCCLPP_DEVICE_H_
