/* The argument of the kernel in exchange.cc, for the program and for the kernel. */
#ifndef EXCHANGE_H_
#define EXCHANGE_H_

#include <stdint.h>

#define EXCHANGE_COUNT 1000 /* numbers that each rank sends, and receives behind them */

struct exchange {
  unsigned char channel[64]; /* the device handle of a memory channel */
  uint64_t memory;           /* the address of this rank's memory, which is that channel's */
  uint32_t rank;
  uint32_t failed; /* not used */
};

#endif
