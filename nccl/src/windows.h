/* Windows: memory of all ranks at one stride, of which kernels read a structure on the device. */
#pragma once

#include <stdint.h>

#include "comm.h"
#include "door.h"

/* What compiled kernels read of a window, as NCCL lays it out. Newer versions have more behind it, which is 0 here but for the number of segments. */
struct window_on_device {
  void* host;
  char* flat;         /* where rank 0's memory is */
  int lsa_rank, rank; /* all ranks are one domain of loads and stores */
  uint32_t stride;    /* in units of 4 GiB */
  uint32_t multicast, gin;
  uint32_t flags;     /* since 2.31 */
  void* gin_windows[4];
  void* segments;     /* since 2.30.4, as the next */
  int segment_count;
};

struct window {
  struct window* next;
  ncclComm_t comm;
  ncclWindow_t at; /* on the device */
  void* buff;
  size_t size;
  int resource;    /* of a device communicator: its memory is the library's */
  struct door_window inner; /* .window NULL: its memory was freed */
  struct page* page;
  int slot;
};

/* window_open makes a window, together with all ranks. buff NULL: the library allocates its memory. *out is NULL if a rank cannot
 * take part; then last_error has the reason. */
ncclResult_t window_open(ncclComm_t comm, void* buff, size_t size, int flags, struct window** out);

/* window_close ends a window of a communicator, for this rank; 0: it has none there. */
int window_close(ncclComm_t comm, ncclWindow_t at, int resource);

/* window_look calls f with a window of any communicator, under the lock; 0: there is none. */
int window_look(ncclWindow_t at, void (*f)(const struct window* w, void* with), void* with);

/* windows_table is where kernels find the windows of a communicator by address. */
ncclResult_t windows_table(ncclComm_t comm, void** at);

/* windows_of_memory ends the windows of memory that is going to be freed. */
void windows_of_memory(void* p, size_t size);

/* windows_free forgets those of a communicator that has ended. */
void windows_free(ncclComm_t comm);

/* windows_domain reports whether kernels reach the memory of all ranks of a communicator. */
int windows_domain(ncclComm_t comm);
