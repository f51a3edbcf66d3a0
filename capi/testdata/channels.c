/* Memory, windows and channels between two ranks on the host. */
#include "client.h"

enum { BYTES = 4096 };

static mscclpp_comm_t comm;
static int32_t rank;

/* bytes_of returns memory of the host as the process sees it. */
static unsigned char *bytes_of(mscclpp_memory_t memory) {
  void *at;
  size_t size;
  OK(mscclpp_memory_range(memory, &at, &size));
  TRUE(at != NULL && size == BYTES);
  OK(mscclpp_memory_range(memory, NULL, NULL));
  return at;
}

static void windows(mscclpp_memory_t memory) {
  mscclpp_window_t window;
  void *own, *peer;
  unsigned char handles[2][64], none[64] = {0};
  size_t size = BYTES;
  unsigned char *mine = bytes_of(memory);
  REFUSES(mscclpp_window_arrange(comm, memory, 0, &window), MSCCLPP_UNSUPPORTED, "does not map memory side by side");
  OK(mscclpp_window_create(comm, memory, &window));
  OK(mscclpp_window_peer(window, rank, &own, &size));
  TRUE(own == mine && size == BYTES);
  OK(mscclpp_window_peer(window, 1 - rank, &peer, &size));
  TRUE(peer != own && size == BYTES);
  REFUSES(mscclpp_window_peer(window, 2, &peer, &size), MSCCLPP_INVALID, "rank 2 of 2");
  mine[7] = (unsigned char)(10 + rank);
  OK(mscclpp_barrier(comm, NULL));
  TRUE(((unsigned char *)peer)[7] == 10 + (1 - rank));
  size = 64;
  REFUSES(mscclpp_window_channels(window, handles, &size), MSCCLPP_INVALID, "expected 128");
  TRUE(size == 128);
  OK(mscclpp_window_channels(window, handles, &size));
  TRUE(memcmp(handles[rank], none, 64) == 0 && memcmp(handles[1 - rank], none, 64) != 0);
  OK(mscclpp_all_reduce(comm, mine, mine, BYTES / 4, MSCCLPP_INT32, MSCCLPP_MAX, NULL)); /* in place, registered */
  TRUE(mine[7] == 11);
  OK(mscclpp_barrier(comm, NULL));
  OK(mscclpp_window_free(window));
  REFUSES(mscclpp_window_free(window), MSCCLPP_INVALID, "a window that was destroyed");
}

/* Rank 0 puts from memory of its own, and rank 1 answers. */
static void ports(mscclpp_memory_t memory) {
  static unsigned char source[BYTES];
  mscclpp_memory_t registered;
  mscclpp_channel_t channel;
  unsigned char *target = bytes_of(memory), handle[128];
  size_t size = sizeof handle;
  memset(source, 40 + rank, sizeof source);
  memset(target, 0, BYTES);
  OK(mscclpp_barrier(comm, NULL));
  OK(mscclpp_memory_register(comm, source, sizeof source, &registered));
  OK(mscclpp_port_channel(comm, 1 - rank, registered, memory, &channel));
  OK(mscclpp_channel_handle(channel, handle, &size));
  TRUE(size == sizeof handle);
  if (rank == 0) {
    OK(mscclpp_port_put_signal(channel, 100, 0, 50));
    OK(mscclpp_port_wait(channel, 0));
    TRUE(target[3] == 41 && target[13] == 0);
    REFUSES(mscclpp_port_wait(channel, 1000000), MSCCLPP_TIMEOUT, ""); /* no rank signals */
  } else {
    OK(mscclpp_port_wait(channel, 0));
    TRUE(target[99] == 0 && target[100] == 40 && target[149] == 40 && target[150] == 0);
    OK(mscclpp_port_put(channel, 3, 0, 10));
    OK(mscclpp_port_signal(channel));
    OK(mscclpp_port_flush(channel, 0));
  }
  OK(mscclpp_barrier(comm, NULL));
  OK(mscclpp_channel_free(channel));
  OK(mscclpp_memory_free(registered));
}

static void handles_of_kinds(mscclpp_memory_t memory) {
  mscclpp_channel_t channel;
  mscclpp_memory_t other;
  unsigned char handle[64];
  size_t size = 10;
  void *control;
  OK(mscclpp_memory_channel(comm, 1 - rank, memory, &channel));
  REFUSES(mscclpp_channel_handle(channel, handle, &size), MSCCLPP_INVALID, "expected 64");
  TRUE(size == sizeof handle);
  OK(mscclpp_channel_handle(channel, handle, &size));
  REFUSES(mscclpp_port_signal(channel), MSCCLPP_INVALID, "expected a port channel");
  REFUSES(mscclpp_port_signal((mscclpp_channel_t)memory), MSCCLPP_INVALID, "is a memory: expected a channel");
  REFUSES(mscclpp_memory_free((mscclpp_memory_t)comm), MSCCLPP_INVALID, "is a communicator: expected a memory");
  OK(mscclpp_channel_free(channel));
  memset(bytes_of(memory), 0, BYTES);
  OK(mscclpp_switch_channel(comm, memory, &channel));
  OK(mscclpp_channel_handle(channel, handle, &size));
  TRUE(size == sizeof handle);
  OK(mscclpp_barrier(comm, NULL));
  OK(mscclpp_channel_free(channel));
  OK(mscclpp_comm_control(comm, &control));
  TRUE(control != NULL);
  REFUSES(mscclpp_memory_channel(comm, rank, memory, &channel), MSCCLPP_INVALID, "expected another rank");
  REFUSES(mscclpp_memory_channel(comm, 5, memory, &channel), MSCCLPP_INVALID, "rank 5 of 2");
  REFUSES(mscclpp_memory_register(comm, NULL, 5, &other), MSCCLPP_INVALID, "5 bytes at");
}

void channels(void) {
  mscclpp_memory_t memory, left;
  mscclpp_kept_t kept;
  unsigned char *at;
  int32_t ranks;
  OK(mscclpp_comm_create(NULL, &comm));
  REFUSES(mscclpp_memory_alloc(comm, BYTES, &memory), MSCCLPP_INVALID, "was not joined");
  OK(mscclpp_comm_join(comm));
  OK(mscclpp_comm_rank(comm, &rank));
  OK(mscclpp_comm_size(comm, &ranks));
  TRUE(ranks == 2);
  OK(mscclpp_memory_alloc(comm, BYTES, &memory));
  windows(memory);
  ports(memory);
  handles_of_kinds(memory);
  OK(mscclpp_memory_free(memory));
  OK(mscclpp_memory_alloc(comm, BYTES, &left));
  OK(mscclpp_memory_keep(left, &kept));
  at = bytes_of(left);
  OK(mscclpp_memory_free(left));
  memset(at, 1, BYTES); /* it is there */
  OK(mscclpp_memory_alloc(comm, BYTES, &left));
  OK(mscclpp_comm_destroy(comm));
  TRUE(at[BYTES - 1] == 1);
  OK(mscclpp_memory_release(kept));
  REFUSES(mscclpp_memory_release(kept), MSCCLPP_INVALID, "a kept memory that was destroyed");
  REFUSES(mscclpp_memory_keep(left, &kept), MSCCLPP_INVALID, "a memory that was destroyed");
  REFUSES(mscclpp_memory_free(left), MSCCLPP_INVALID, "a memory that was destroyed"); /* with its communicator */
}
