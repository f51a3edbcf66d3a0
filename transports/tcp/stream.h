// Reads and writes of streams that wait in the kernel, not in a scheduler of this
// process: a waiting thread is woken by the packet itself. Sockets are blocking ones.
#ifndef MSCCLPP_TCP_STREAM_H
#define MSCCLPP_TCP_STREAM_H

#include <stdint.h>

enum {
  mscclpp_tcp_head = 32,          // bytes of a frame's head
  mscclpp_tcp_handles = 992,      // that frames can cite
  mscclpp_tcp_put = 2,            // kinds of frames that the loop performs
  mscclpp_tcp_signal = 4,
  mscclpp_tcp_small = 8 << 10,    // a put up to this size is likely to be followed by more
  mscclpp_tcp_ahead = 64 << 10,   // most that is read beside what was asked for
  mscclpp_tcp_parts = 8,          // most that is written by one call
};

// Why a read returns.
enum {
  mscclpp_tcp_done = 0,    // the requested bytes are there
  mscclpp_tcp_other = 1,   // a frame that the loop does not perform is in head
  mscclpp_tcp_last = 2,    // a frame was performed, and its memory has no user any more
  mscclpp_tcp_over = 3,    // the stream has ended
  mscclpp_tcp_failed = 4,  // error says why
};

// Memory that frames reach. Go code makes it, and keeps it in place while a reader
// has it in its table.
typedef struct {
  int64_t users;  // 0: it was closed, and has nobody inside
  char* base;
  uint64_t bytes;
} mscclpp_tcp_span;

typedef struct {
  int32_t error;
  uint32_t begin, end;  // of what was read ahead and is not used
  uint32_t batched;     // the last put was small
  char head[mscclpp_tcp_head];
  mscclpp_tcp_span* table[mscclpp_tcp_handles];  // by handle
  char ahead[mscclpp_tcp_ahead];
} mscclpp_tcp_reader;

mscclpp_tcp_reader* mscclpp_tcp_new(void);

// Performs puts and signals until something else comes.
int mscclpp_tcp_serve(mscclpp_tcp_reader* r, int fd);

// Fills a range.
int mscclpp_tcp_full(mscclpp_tcp_reader* r, int fd, void* to, uint64_t bytes);

// Waits until one of some sockets can be read, or has ended; returns its number.
int mscclpp_tcp_any(const int* fds, int n);

// Data of a put, which is sent from where it is.
typedef struct {
  uint64_t held;  // the frames that come before it end here
  const char* data;
  uint64_t bytes;
} mscclpp_tcp_part;

// Writes frames, with data in between. Returns 0, or what errno says.
int mscclpp_tcp_send(int fd, const char* frames, uint64_t bytes, const mscclpp_tcp_part* parts, int n);

#endif
