#ifndef MSCCLPP_VERBS_SHIM_H
#define MSCCLPP_VERBS_SHIM_H

// Calls of libibverbs as Go makes them: flat arguments, errors as numbers of errno. The
// library is loaded when it is first needed, so that a program runs without it.

#include "abi.h"

typedef struct mscclpp_verbs mscclpp_verbs;

enum { mscclpp_verbs_name = 64, mscclpp_verbs_batch = 16 };

// NULL: err says why.
mscclpp_verbs* mscclpp_verbs_load(const char* path, char* err, size_t bytes);

// Names of the devices; the result is their number, or -errno.
int mscclpp_verbs_list(mscclpp_verbs*, char (*names)[mscclpp_verbs_name], int most);

typedef struct {
  struct rv_context* context;
  struct rv_pd* pd;
  struct rv_comp_channel* channel;
  struct rv_device_attr attr;
} mscclpp_verbs_device;

int mscclpp_verbs_open(mscclpp_verbs*, const char* name, mscclpp_verbs_device* out);
void mscclpp_verbs_close(mscclpp_verbs*, mscclpp_verbs_device*);
int mscclpp_verbs_port(mscclpp_verbs*, struct rv_context*, int port, struct rv_port_attr* out);

// type is one of rv_gid_…, or -1 where the library does not know.
int mscclpp_verbs_gid(mscclpp_verbs*, struct rv_context*, int port, int index, uint8_t gid[16], int* type);

struct rv_mr* mscclpp_verbs_register(mscclpp_verbs*, struct rv_pd*, void* addr, size_t bytes, int access, int* err);
struct rv_mr* mscclpp_verbs_register_dmabuf(mscclpp_verbs*, struct rv_pd*, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access,
                                            int* err);
int mscclpp_verbs_has_dmabuf(const mscclpp_verbs*);
int mscclpp_verbs_deregister(mscclpp_verbs*, struct rv_mr*);

struct rv_cq* mscclpp_verbs_queue(mscclpp_verbs*, struct rv_context*, int entries, struct rv_comp_channel*, int* err);
int mscclpp_verbs_free_queue(mscclpp_verbs*, struct rv_cq*);

// The inline size that was granted is left in *inline_bytes.
struct rv_qp* mscclpp_verbs_pair(mscclpp_verbs*, struct rv_pd*, struct rv_cq* send, struct rv_cq* recv, uint32_t sends, uint32_t recvs,
                                 uint32_t* inline_bytes, int* err);
int mscclpp_verbs_free_pair(mscclpp_verbs*, struct rv_qp*);

typedef struct {
  uint32_t peer_qpn, peer_psn, own_psn;
  int port, mtu, gid_index, global;
  uint8_t gid[16];
  uint16_t lid;
  uint8_t level, traffic_class;
  uint8_t timeout, retries, rnr_retries, initiated, accepted;  // the last two: reads and atomics at a time
  int access;
} mscclpp_verbs_path;

int mscclpp_verbs_reset(mscclpp_verbs*, struct rv_qp*);
int mscclpp_verbs_init(mscclpp_verbs*, struct rv_qp*, const mscclpp_verbs_path*);
int mscclpp_verbs_ready(mscclpp_verbs*, struct rv_qp*, const mscclpp_verbs_path*);  // to receive, then to send

// One work request. Atomics add value; immediates carry it.
typedef struct {
  uint64_t id, local, remote, value;
  uint32_t bytes, lkey, rkey;
  uint16_t opcode, flags;
} mscclpp_verbs_op;

// Functions that are called for each message take their queue as a number: cgo checks the
// content of structures behind pointers at each call.

// Posts up to mscclpp_verbs_batch requests by one call, and returns 0 or less than that: an
// error, and in *posted how many were taken. With most, also takes up to so many completions
// of queue into out, and returns how many; an error of the queue is left to the next poll.
int mscclpp_verbs_post(uintptr_t pair, const mscclpp_verbs_op*, int n, uintptr_t queue, struct rv_wc* out, int most, int* posted);
int mscclpp_verbs_post_receives(struct rv_qp*, int n);

// A request that is posted by itself again and again, each time with another wr.wr_id: it is
// put together once. The caller says where it goes and where completions do, and how many of
// these to take by the same call. The answer is in came: how many there were, or an error.
typedef struct {
  struct rv_qp* qp;
  struct rv_cq* cq;
  struct rv_wc* out;
  int most, came;
  struct rv_send_wr wr;
  struct rv_sge sge;
} mscclpp_verbs_ready_made;

void mscclpp_verbs_prepare(mscclpp_verbs_ready_made*, const mscclpp_verbs_op* op);

// As mscclpp_verbs_post of the one request. It returns nothing, because cgo would ask where the
// stack is, twice, for a result.
void mscclpp_verbs_again(uintptr_t ready_made);

int mscclpp_verbs_poll(uintptr_t queue, struct rv_wc* out, int most);
int mscclpp_verbs_arm(struct rv_cq*);
int mscclpp_verbs_event(mscclpp_verbs*, struct rv_comp_channel*, int timeout_ms);  // 1: there was one

#endif
