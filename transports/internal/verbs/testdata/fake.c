// A libibverbs without hardware, for tests: adapters that reach each other's memory because
// they are in one process. Requests are performed when they are posted, in order, with the
// checks of a real adapter. Compiled by tests, with what is to be wrong as macros.
//
//   FAKE_VERBS_LOG    file to which every request is appended, one line each
//   FAKE_VERBS_FAIL   file; while it exists, requests end with the status that is in it
//   FAKE_VERBS_HOLD   file; while it exists, no completion is to be had
//   FAKE_VERBS_STAMP  file of 8 bytes, which has the time at which a request was posted last:
//                     nanoseconds of the system's clock, read before anything is done for it
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../abi.h"

#ifndef DEVICES
#define DEVICES 2
#endif
#ifndef PORT_STATE
#define PORT_STATE 4
#endif
#ifndef ATOMIC_CAP
#define ATOMIC_CAP 1
#endif
#ifndef GID_KIND
#define GID_KIND 2
#endif
#ifndef MTU
#define MTU 3
#endif
#ifndef LINK_LAYER
#define LINK_LAYER 2
#endif
#ifndef REGISTER_ERRNO
#define REGISTER_ERRNO 0
#endif
#ifndef OPEN_ERRNO
#define OPEN_ERRNO 0
#endif
#ifndef CQ_ERRNO
#define CQ_ERRNO 0
#endif
#ifndef RECV_CQ_ERRNO  // of a queue that has a channel
#define RECV_CQ_ERRNO 0
#endif
#ifndef QP_ERRNO
#define QP_ERRNO 0
#endif

enum { limit = 1 << 14 };

struct queue {
  struct rv_cq cq;
  struct rv_comp_channel* channel;
  struct rv_wc* wc;
  uint64_t head, tail;
  int entries, armed;
};
struct channel {
  struct rv_comp_channel c;
  int write;
};
struct pair {
  struct rv_qp qp;
  int state, access;
  uint32_t peer, psn, peer_psn;
  uint32_t sends, receives, inline_bytes;
  uint64_t posted;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pair* pairs[limit];
static struct rv_mr* regions[limit];
static int access_of[limit];
static struct { char *base, *first; size_t length; } maps[limit];  // of regions behind descriptors
static int last_pair, last_region;
static int device_ids[DEVICES + 1];
static char names[DEVICES + 1][16];

static FILE* record(void) {
  const char* path = getenv("FAKE_VERBS_LOG");
  return path == NULL || *path == 0 ? NULL : fopen(path, "a");
}

static int injected(void) {
  const char* path = getenv("FAKE_VERBS_FAIL");
  FILE* f = path == NULL || *path == 0 ? NULL : fopen(path, "r");
  int status = 0;
  if (f == NULL) return 0;
  if (fscanf(f, "%d", &status) != 1) status = 0;
  fclose(f);
  return status;
}

// Before any thread asks: several list the devices at once, and read names meanwhile.
__attribute__((constructor)) static void name_devices(void) {
  for (int i = 0; i < DEVICES; ++i) {
    snprintf(names[i], sizeof names[i], "fake%d", i);
    device_ids[i] = i;
  }
}

void** ibv_get_device_list(int* n) {
  void** list = calloc(DEVICES + 1, sizeof *list);
  *n = DEVICES;
  for (int i = 0; i < DEVICES; ++i) list[i] = &device_ids[i];
  return list;
}
void ibv_free_device_list(void** list) { free(list); }
const char* ibv_get_device_name(void* d) { return names[*(int*)d]; }

static void complete(struct queue* q, uint64_t id, int status, uint32_t imm, uint32_t qpn) {
  if (q->head - q->tail >= (uint64_t)q->entries) abort();  // a queue that overflows loses completions
  q->wc[q->head++ % (uint64_t)q->entries] = (struct rv_wc){.wr_id = id, .status = status, .imm_data = imm, .qp_num = qpn};
  if (q->armed && q->channel != NULL) {
    q->armed = 0;
    if (write(((struct channel*)q->channel)->write, &q, sizeof q) != sizeof q) abort();
  }
}

static int poll_cq(struct rv_cq* cq, int most, struct rv_wc* out) {
  struct queue* q = (struct queue*)cq;
  const char* hold = getenv("FAKE_VERBS_HOLD");
  int n = 0;
  if (hold != NULL && *hold != 0 && access(hold, F_OK) == 0) return 0;
  pthread_mutex_lock(&lock);
  while (n < most && q->tail < q->head) out[n++] = q->wc[q->tail++ % (uint64_t)q->entries];
  pthread_mutex_unlock(&lock);
  return n;
}

static int req_notify_cq(struct rv_cq* cq, int solicited) {
  (void)solicited;
  pthread_mutex_lock(&lock);
  ((struct queue*)cq)->armed = 1;
  pthread_mutex_unlock(&lock);
  return 0;
}

// Memory behind a key, if all of it may be used so; else NULL.
static void* reach(uint32_t rkey, uint64_t addr, uint64_t bytes, int access) {
  if (rkey == 0 || rkey >= limit || regions[rkey] == NULL || (access_of[rkey] & access) != access) return NULL;
  const uint64_t start = (uint64_t)(uintptr_t)regions[rkey]->addr;
  if (addr < start || addr + bytes > start + regions[rkey]->length) return NULL;
  if (maps[rkey].base != NULL) return maps[rkey].first + (addr - start);
  return (void*)(uintptr_t)addr;
}

static int perform(struct pair* p, struct rv_send_wr* w) {
  struct pair* peer = p->peer < limit ? pairs[p->peer] : NULL;
  const int fault = injected();
  if (fault != 0) return fault;
  if (peer == NULL || peer->state < rv_qps_rtr || peer->state > rv_qps_rts || peer->peer != p->qp.qp_num) return 12;
  if (peer->peer_psn != p->psn) return 12;
  const uint64_t bytes = w->num_sge == 0 ? 0 : w->sg_list[0].length;
  void* local = bytes == 0 ? NULL : (void*)(uintptr_t)w->sg_list[0].addr;
  if (bytes > 0 && !(w->send_flags & rv_send_inline)) {
    local = reach(w->sg_list[0].lkey, w->sg_list[0].addr, bytes, rv_access_local_write);
    if (local == NULL) return 4;
  }
  if (w->send_flags & rv_send_inline && (bytes > p->inline_bytes || w->opcode > rv_wr_rdma_write_with_imm)) return 1;
  void* remote;
  switch (w->opcode) {
    case rv_wr_rdma_write:
    case rv_wr_rdma_write_with_imm:
      remote = bytes == 0 ? NULL : reach(w->wr.rdma.rkey, w->wr.rdma.remote_addr, bytes, rv_access_remote_write);
      if (bytes > 0 && remote == NULL) return 10;
      if (bytes > 0) memcpy(remote, local, bytes);
      if (w->opcode == rv_wr_rdma_write_with_imm) {
        if (peer->posted == 0) return 13;  // a real adapter would try again; credits make sure that it need not
        peer->posted--;
        complete((struct queue*)peer->qp.recv_cq, 0, 0, w->imm_data, peer->qp.qp_num);
      }
      return 0;
    case rv_wr_rdma_read:
      remote = reach(w->wr.rdma.rkey, w->wr.rdma.remote_addr, bytes, rv_access_remote_read);
      if (remote == NULL) return 10;
      memcpy(local, remote, bytes);
      return 0;
    case rv_wr_fetch_and_add:
      remote = reach(w->wr.atomic.rkey, w->wr.atomic.remote_addr, 8, rv_access_remote_atomic);
      if (remote == NULL || bytes != 8 || w->wr.atomic.remote_addr % 8 != 0 || !(peer->access & rv_access_remote_atomic)) return 9;
      *(uint64_t*)local = __atomic_fetch_add((uint64_t*)remote, w->wr.atomic.compare_add, __ATOMIC_SEQ_CST);
      return 0;
  }
  return 9;
}

static uint64_t* stamp_word;

static void stamp(void) {
  uint64_t* const word = __atomic_load_n(&stamp_word, __ATOMIC_RELAXED);
  if (word == NULL) return;
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  __atomic_store_n(word, (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec, __ATOMIC_RELEASE);
}

static void map_stamp(void) {
  const char* path = getenv("FAKE_VERBS_STAMP");
  const int fd = path == NULL || *path == 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);
  void* word = fd < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  __atomic_store_n(&stamp_word, word == MAP_FAILED ? NULL : word, __ATOMIC_RELAXED);  // an old one stays mapped: somebody may write it
}

static int post_send(struct rv_qp* qp, struct rv_send_wr* w, struct rv_send_wr** bad) {
  stamp();
  struct pair* p = (struct pair*)qp;
  int err = 0;
  pthread_mutex_lock(&lock);
  FILE* log = record();
  for (int first = 1; w != NULL; w = w->next, first = 0) {
    struct queue* q = (struct queue*)qp->send_cq;
    if (p->state < rv_qps_rts || q->head - q->tail >= p->sends) {
      *bad = w;
      err = p->state < rv_qps_rts ? EINVAL : ENOMEM;
      break;
    }
    if (log != NULL) {
      static const char* ops[] = {"write", "imm", "send", "sendimm", "read", "cas", "add"};
      fprintf(log, "%s %s bytes=%u%s%s value=%llu\n", first ? "post" : "  +", ops[w->opcode], w->num_sge == 0 ? 0 : w->sg_list[0].length,
              w->send_flags & rv_send_signaled ? " signaled" : "", w->send_flags & rv_send_inline ? " inline" : "",
              (unsigned long long)(w->opcode == rv_wr_fetch_and_add ? w->wr.atomic.compare_add : ntohl(w->imm_data)));
    }
    const int status = p->state == rv_qps_err ? rv_wc_wr_flush_err : perform(p, w);
    if (status != 0) p->state = rv_qps_err;
    if (status != 0 || w->send_flags & rv_send_signaled) complete(q, w->wr_id, status, 0, qp->qp_num);
    for (; status != 0 && p->posted > 0; p->posted--) complete((struct queue*)qp->recv_cq, 0, rv_wc_wr_flush_err, 0, qp->qp_num);
  }
  if (log != NULL) fclose(log);
  pthread_mutex_unlock(&lock);
  return err;
}

static int post_recv(struct rv_qp* qp, struct rv_recv_wr* w, struct rv_recv_wr** bad) {
  struct pair* p = (struct pair*)qp;
  int err = 0;
  pthread_mutex_lock(&lock);
  for (; w != NULL && err == 0; w = w->next) {
    if (p->state == rv_qps_reset || p->posted == p->receives) {
      *bad = w;
      err = p->state == rv_qps_reset ? EINVAL : ENOMEM;
    } else {
      p->posted++;
    }
  }
  pthread_mutex_unlock(&lock);
  return err;
}

struct rv_context* ibv_open_device(void* d) {
  if (OPEN_ERRNO != 0) {
    errno = OPEN_ERRNO;
    return NULL;
  }
  map_stamp();
  struct rv_context* c = calloc(1, sizeof *c);
  c->device = d;
  c->ops.poll_cq = poll_cq;
  c->ops.req_notify_cq = req_notify_cq;
  c->ops.post_send = post_send;
  c->ops.post_recv = post_recv;
  return c;
}
int ibv_close_device(struct rv_context* c) { return free(c), 0; }
int ibv_query_device(struct rv_context* c, struct rv_device_attr* a) {
  (void)c;
  memset(a, 0, sizeof *a);
  a->max_qp_wr = limit;
  a->max_qp_rd_atom = a->max_qp_init_rd_atom = 16;
  a->atomic_cap = ATOMIC_CAP;
  a->phys_port_cnt = 2;  // the first is never used
  return 0;
}
int ibv_query_port(struct rv_context* c, uint8_t port, struct rv_port_attr* a) {
  (void)c;
  a->state = port == 2 ? PORT_STATE : 1;
  a->active_mtu = a->max_mtu = *(int*)c->device == 1 ? 5 : MTU;
  a->gid_tbl_len = 4;
  a->max_msg_sz = 1u << 16;
  a->lid = 7;
  a->link_layer = LINK_LAYER;
  return 0;
}

// The table of a RoCE port: a hole, RoCE v1, RoCE v2 link local, RoCE v2 IPv4.
int _ibv_query_gid_ex(struct rv_context* c, uint32_t port, uint32_t index, struct rv_gid_entry* e, uint32_t flags, size_t bytes) {
  (void)c, (void)port, (void)flags, (void)bytes;
  static const uint8_t local[16] = {0xfe, 0x80, [15] = 1}, v4[16] = {[10] = 0xff, 0xff, 192, 0, 2, 1};
  if (index == 0 || index > 3) return ENODATA;
  memcpy(e->gid, index == 3 ? v4 : local, 16);
  e->gid_type = index == 1 ? 1 : GID_KIND;
  return 0;
}
int ibv_query_gid(struct rv_context* c, uint8_t port, int index, uint8_t* gid) {
  (void)c, (void)port, (void)index, (void)gid;
  errno = EINVAL;
  return -1;
}
struct rv_pd* ibv_alloc_pd(struct rv_context* c) {
  struct rv_pd* pd = calloc(1, sizeof *pd);
  pd->context = c;
  return pd;
}
int ibv_dealloc_pd(struct rv_pd* pd) { return free(pd), 0; }

static struct rv_mr* add_region(struct rv_pd* pd, void* addr, size_t bytes, int access, const char* kind) {
  if (REGISTER_ERRNO != 0) {
    errno = REGISTER_ERRNO;
    return NULL;
  }
  struct rv_mr* mr = calloc(1, sizeof *mr);
  pthread_mutex_lock(&lock);
  do last_region = last_region % (limit - 1) + 1;
  while (regions[last_region] != NULL);
  *mr = (struct rv_mr){pd->context, pd, addr, bytes, 0, (uint32_t)last_region, (uint32_t)last_region};
  regions[last_region] = mr;
  access_of[last_region] = access;
  FILE* log = record();
  if (log != NULL) {
    fprintf(log, "register%s access=%#x\n", kind, access);
    fclose(log);
  }
  pthread_mutex_unlock(&lock);
  return mr;
}
struct rv_mr* ibv_reg_mr(struct rv_pd* pd, void* addr, size_t bytes, int access) { return add_region(pd, addr, bytes, access, ""); }
#ifdef DMABUF  // of an emulated GPU, whose memory is a file
struct rv_mr* ibv_reg_dmabuf_mr(struct rv_pd* pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access) {
  struct stat st;
  if (fstat(fd, &st) != 0 || offset + bytes > (uint64_t)st.st_size || iova != offset) {
    errno = EINVAL;
    return NULL;
  }
  const uint64_t before = offset % 4096;
  char* base = mmap(NULL, before + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(offset - before));
  if (base == MAP_FAILED) return NULL;
  struct rv_mr* mr = add_region(pd, (void*)iova, bytes, access, " dma-buf");
  if (mr == NULL) {
    munmap(base, before + bytes);
    return NULL;
  }
  pthread_mutex_lock(&lock);
  maps[mr->lkey].base = base;
  maps[mr->lkey].first = base + before;
  maps[mr->lkey].length = before + bytes;
  pthread_mutex_unlock(&lock);
  return mr;
}
#endif
int ibv_dereg_mr(struct rv_mr* mr) {
  pthread_mutex_lock(&lock);
  regions[mr->lkey] = NULL;
  if (maps[mr->lkey].base != NULL) munmap(maps[mr->lkey].base, maps[mr->lkey].length);
  maps[mr->lkey].base = NULL;
  pthread_mutex_unlock(&lock);
  return free(mr), 0;
}
struct rv_comp_channel* ibv_create_comp_channel(struct rv_context* c) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return NULL;
  struct channel* ch = calloc(1, sizeof *ch);
  ch->c = (struct rv_comp_channel){c, ends[0]};
  ch->write = ends[1];
  return &ch->c;
}
int ibv_destroy_comp_channel(struct rv_comp_channel* c) {
  close(c->fd);
  close(((struct channel*)c)->write);
  return free(c), 0;
}
int ibv_get_cq_event(struct rv_comp_channel* c, struct rv_cq** cq, void** ctx) {
  *ctx = NULL;
  return read(c->fd, cq, sizeof *cq) == sizeof *cq ? 0 : -1;
}
void ibv_ack_cq_events(struct rv_cq* cq, unsigned n) { (void)cq, (void)n; }
struct rv_cq* ibv_create_cq(struct rv_context* c, int entries, void* ctx, struct rv_comp_channel* channel, int vector) {
  (void)ctx, (void)vector;
  const int err = channel == NULL ? CQ_ERRNO : RECV_CQ_ERRNO;
  if (err != 0) return errno = err, NULL;
  struct queue* q = calloc(1, sizeof *q);
  q->cq.context = c;
  q->channel = channel;
  q->entries = entries;
  q->wc = calloc((size_t)entries, sizeof *q->wc);
  return &q->cq;
}
int ibv_destroy_cq(struct rv_cq* cq) { return free(((struct queue*)cq)->wc), free(cq), 0; }

struct rv_qp* ibv_create_qp(struct rv_pd* pd, struct rv_qp_init_attr* a) {
  if (QP_ERRNO != 0) return errno = QP_ERRNO, NULL;
  if (a->cap.max_inline_data > 32) {  // as devices do: no, and not a word about the limit
    errno = EINVAL;
    return NULL;
  }
  struct pair* p = calloc(1, sizeof *p);
  pthread_mutex_lock(&lock);
  do last_pair = last_pair % (limit - 1) + 1;
  while (pairs[last_pair] != NULL);
  p->qp = (struct rv_qp){pd->context, NULL, pd, a->send_cq, a->recv_cq, NULL, 0, (uint32_t)last_pair};
  p->sends = a->cap.max_send_wr;
  p->receives = a->cap.max_recv_wr;
  p->inline_bytes = a->cap.max_inline_data;
  pairs[last_pair] = p;
  pthread_mutex_unlock(&lock);
  return &p->qp;
}
int ibv_modify_qp(struct rv_qp* qp, struct rv_qp_attr* a, int mask) {
  struct pair* p = (struct pair*)qp;
  pthread_mutex_lock(&lock);
  p->state = a->qp_state;
  if (mask & rv_qp_access_flags) p->access = (int)a->qp_access_flags;
  if (mask & rv_qp_dest_qpn) p->peer = a->dest_qp_num;
  if (mask & rv_qp_rq_psn) p->peer_psn = a->rq_psn;
  if (mask & rv_qp_sq_psn) p->psn = a->sq_psn;
  if (a->qp_state == rv_qps_reset) p->posted = 0;
  FILE* log = record();
  if (log != NULL && a->qp_state == rv_qps_rtr) {
    fprintf(log, "rtr mtu=%d global=%d gid_index=%d class=%d port=%d\n", a->path_mtu, a->ah_attr.is_global, a->ah_attr.grh.sgid_index,
            a->ah_attr.grh.traffic_class, a->ah_attr.port_num);
  }
  if (log != NULL && a->qp_state == rv_qps_rts) fprintf(log, "rts timeout=%d retries=%d rnr=%d\n", a->timeout, a->retry_cnt, a->rnr_retry);
  if (log != NULL) fclose(log);
  pthread_mutex_unlock(&lock);
  return 0;
}
int ibv_destroy_qp(struct rv_qp* qp) {
  pthread_mutex_lock(&lock);
  pairs[qp->qp_num] = NULL;
  pthread_mutex_unlock(&lock);
  return free(qp), 0;
}
