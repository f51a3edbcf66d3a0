// The part of a ring that C needs to know: loops in C that drain one include this file and repeat
// nothing. The layout is that of mscclpp/layout.h, which is C++, and of framework/kernel;
// ring_h_test.go compares the numbers with those of Go. Packages in Go that
// include it import this one, which embeds it, so that a build notices that it has changed.
#ifndef MSCCLPP_RING_H_
#define MSCCLPP_RING_H_

enum {
  // Byte offsets.
  mscclpp_ring_tail = 64,
  mscclpp_ring_error = 128,
  mscclpp_ring_parked = 132,
  mscclpp_ring_head = 192,
  mscclpp_ring_flush = 256,
  mscclpp_ring_triggers = 4096,

  mscclpp_ring_flush_words = 480,
  mscclpp_ring_trigger = 16,  // bytes
  mscclpp_ring_invalid = 3,   // value of the error word: a trigger makes no sense

  // The operations of a trigger.
  mscclpp_do_put = 1,
  mscclpp_do_signal = 2,
  mscclpp_do_flush = 4,
};

#endif
