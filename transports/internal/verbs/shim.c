#define _GNU_SOURCE
#include "shim.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mscclpp_verbs {
  void** (*get_device_list)(int*);
  void (*free_device_list)(void**);
  const char* (*get_device_name)(void*);
  struct rv_context* (*open_device)(void*);
  int (*close_device)(struct rv_context*);
  int (*query_device)(struct rv_context*, struct rv_device_attr*);
  int (*query_port)(struct rv_context*, uint8_t, struct rv_port_attr*);
  int (*query_gid)(struct rv_context*, uint8_t, int, uint8_t*);
  int (*query_gid_ex)(struct rv_context*, uint32_t, uint32_t, struct rv_gid_entry*, uint32_t, size_t);  // optional
  struct rv_pd* (*alloc_pd)(struct rv_context*);
  int (*dealloc_pd)(struct rv_pd*);
  struct rv_mr* (*reg_mr)(struct rv_pd*, void*, size_t, int);
  struct rv_mr* (*reg_dmabuf_mr)(struct rv_pd*, uint64_t, size_t, uint64_t, int, int);  // optional
  int (*dereg_mr)(struct rv_mr*);
  struct rv_comp_channel* (*create_comp_channel)(struct rv_context*);
  int (*destroy_comp_channel)(struct rv_comp_channel*);
  struct rv_cq* (*create_cq)(struct rv_context*, int, void*, struct rv_comp_channel*, int);
  int (*destroy_cq)(struct rv_cq*);
  int (*get_cq_event)(struct rv_comp_channel*, struct rv_cq**, void**);
  void (*ack_cq_events)(struct rv_cq*, unsigned);
  struct rv_qp* (*create_qp)(struct rv_pd*, struct rv_qp_init_attr*);
  int (*modify_qp)(struct rv_qp*, struct rv_qp_attr*, int);
  int (*destroy_qp)(struct rv_qp*);
};

mscclpp_verbs* mscclpp_verbs_load(const char* path, char* err, size_t bytes) {
  void* so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (so == NULL) {
    snprintf(err, bytes, "%s", dlerror());
    return NULL;
  }
  mscclpp_verbs* v = calloc(1, sizeof *v);
  const struct {
    const char* name;
    void** at;
    int optional;
  } symbols[] = {
      {"ibv_get_device_list", (void**)&v->get_device_list, 0},
      {"ibv_free_device_list", (void**)&v->free_device_list, 0},
      {"ibv_get_device_name", (void**)&v->get_device_name, 0},
      {"ibv_open_device", (void**)&v->open_device, 0},
      {"ibv_close_device", (void**)&v->close_device, 0},
      {"ibv_query_device", (void**)&v->query_device, 0},
      {"ibv_query_port", (void**)&v->query_port, 0},
      {"ibv_query_gid", (void**)&v->query_gid, 0},
      {"_ibv_query_gid_ex", (void**)&v->query_gid_ex, 1},
      {"ibv_alloc_pd", (void**)&v->alloc_pd, 0},
      {"ibv_dealloc_pd", (void**)&v->dealloc_pd, 0},
      {"ibv_reg_mr", (void**)&v->reg_mr, 0},
      {"ibv_reg_dmabuf_mr", (void**)&v->reg_dmabuf_mr, 1},
      {"ibv_dereg_mr", (void**)&v->dereg_mr, 0},
      {"ibv_create_comp_channel", (void**)&v->create_comp_channel, 0},
      {"ibv_destroy_comp_channel", (void**)&v->destroy_comp_channel, 0},
      {"ibv_create_cq", (void**)&v->create_cq, 0},
      {"ibv_destroy_cq", (void**)&v->destroy_cq, 0},
      {"ibv_get_cq_event", (void**)&v->get_cq_event, 0},
      {"ibv_ack_cq_events", (void**)&v->ack_cq_events, 0},
      {"ibv_create_qp", (void**)&v->create_qp, 0},
      {"ibv_modify_qp", (void**)&v->modify_qp, 0},
      {"ibv_destroy_qp", (void**)&v->destroy_qp, 0},
  };
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; ++i) {
    *symbols[i].at = dlsym(so, symbols[i].name);
    if (*symbols[i].at == NULL && !symbols[i].optional) {
      snprintf(err, bytes, "it has no %s", symbols[i].name);
      free(v);
      dlclose(so);
      return NULL;
    }
  }
  return v;  // never unloaded: providers leave threads and handlers behind
}

// Some calls fail without a word in errno.
static int failed(void) { return errno != 0 ? errno : EIO; }

int mscclpp_verbs_list(mscclpp_verbs* v, char (*names)[mscclpp_verbs_name], int most) {
  int n = 0;
  errno = 0;
  void** list = v->get_device_list(&n);
  if (list == NULL) return -failed();
  if (n > most) n = most;
  for (int i = 0; i < n; ++i) snprintf(names[i], mscclpp_verbs_name, "%s", v->get_device_name(list[i]));
  v->free_device_list(list);
  return n;
}

int mscclpp_verbs_open(mscclpp_verbs* v, const char* name, mscclpp_verbs_device* out) {
  int n = 0, err = ENODEV;
  memset(out, 0, sizeof *out);
  errno = 0;
  void** list = v->get_device_list(&n);
  if (list == NULL) return failed();
  for (int i = 0; i < n; ++i) {
    if (strcmp(v->get_device_name(list[i]), name) != 0) continue;
    errno = 0;
    out->context = v->open_device(list[i]);
    err = out->context == NULL ? failed() : 0;
    break;
  }
  v->free_device_list(list);
  if (err != 0) return err;
  err = v->query_device(out->context, &out->attr);
  errno = 0;
  if (err == 0 && (out->pd = v->alloc_pd(out->context)) == NULL) err = failed();
  errno = 0;
  if (err == 0 && (out->channel = v->create_comp_channel(out->context)) == NULL) err = failed();
  if (err != 0) mscclpp_verbs_close(v, out);
  return err;
}

void mscclpp_verbs_close(mscclpp_verbs* v, mscclpp_verbs_device* d) {
  if (d->channel != NULL) v->destroy_comp_channel(d->channel);
  if (d->pd != NULL) v->dealloc_pd(d->pd);
  if (d->context != NULL) v->close_device(d->context);
  memset(d, 0, sizeof *d);
}

int mscclpp_verbs_port(mscclpp_verbs* v, struct rv_context* c, int port, struct rv_port_attr* out) {
  memset(out, 0, sizeof *out);  // the exported function fills in what its first version had
  return v->query_port(c, (uint8_t)port, out);
}

int mscclpp_verbs_gid(mscclpp_verbs* v, struct rv_context* c, int port, int index, uint8_t gid[16], int* type) {
  struct rv_gid_entry e;
  *type = -1;
  if (v->query_gid_ex != NULL) {
    memset(&e, 0, sizeof e);
    const int err = v->query_gid_ex(c, (uint32_t)port, (uint32_t)index, &e, 0, sizeof e);
    if (err == 0) {
      memcpy(gid, e.gid, sizeof e.gid);
      *type = (int)e.gid_type;
      return 0;
    }
    if (err == ENODATA) return err;  // an empty place of the table
  }
  errno = 0;
  return v->query_gid(c, (uint8_t)port, index, gid) != 0 ? failed() : 0;
}

struct rv_mr* mscclpp_verbs_register(mscclpp_verbs* v, struct rv_pd* pd, void* addr, size_t bytes, int access, int* err) {
  errno = 0;
  struct rv_mr* mr = v->reg_mr(pd, addr, bytes, access);
  *err = mr == NULL ? failed() : 0;
  return mr;
}

struct rv_mr* mscclpp_verbs_register_dmabuf(mscclpp_verbs* v, struct rv_pd* pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access,
                                            int* err) {
  *err = EOPNOTSUPP;
  if (v->reg_dmabuf_mr == NULL) return NULL;
  errno = 0;
  struct rv_mr* mr = v->reg_dmabuf_mr(pd, offset, bytes, iova, fd, access);
  *err = mr == NULL ? failed() : 0;
  return mr;
}

int mscclpp_verbs_has_dmabuf(const mscclpp_verbs* v) { return v->reg_dmabuf_mr != NULL; }

int mscclpp_verbs_deregister(mscclpp_verbs* v, struct rv_mr* mr) { return v->dereg_mr(mr); }

struct rv_cq* mscclpp_verbs_queue(mscclpp_verbs* v, struct rv_context* c, int entries, struct rv_comp_channel* channel, int* err) {
  errno = 0;
  struct rv_cq* cq = v->create_cq(c, entries, NULL, channel, 0);
  *err = cq == NULL ? failed() : 0;
  return cq;
}

int mscclpp_verbs_free_queue(mscclpp_verbs* v, struct rv_cq* cq) { return v->destroy_cq(cq); }

struct rv_qp* mscclpp_verbs_pair(mscclpp_verbs* v, struct rv_pd* pd, struct rv_cq* send, struct rv_cq* recv, uint32_t sends, uint32_t recvs,
                                 uint32_t* inline_bytes, int* err) {
  // Devices refuse too large a wish for inline data and do not report their limit.
  for (uint32_t wish = *inline_bytes;; wish /= 2) {
    struct rv_qp_init_attr a;
    memset(&a, 0, sizeof a);
    a.send_cq = send;
    a.recv_cq = recv;
    a.qp_type = rv_qpt_rc;
    a.cap.max_send_wr = sends;
    a.cap.max_recv_wr = recvs;
    a.cap.max_send_sge = a.cap.max_recv_sge = 1;
    a.cap.max_inline_data = wish;
    errno = 0;
    struct rv_qp* qp = v->create_qp(pd, &a);
    *err = qp == NULL ? failed() : 0;
    if (qp != NULL) *inline_bytes = a.cap.max_inline_data;
    if (qp != NULL || wish == 0) return qp;
  }
}

int mscclpp_verbs_free_pair(mscclpp_verbs* v, struct rv_qp* qp) { return v->destroy_qp(qp); }

int mscclpp_verbs_reset(mscclpp_verbs* v, struct rv_qp* qp) {
  struct rv_qp_attr a;
  memset(&a, 0, sizeof a);
  a.qp_state = rv_qps_reset;
  return v->modify_qp(qp, &a, rv_qp_state);
}

int mscclpp_verbs_init(mscclpp_verbs* v, struct rv_qp* qp, const mscclpp_verbs_path* p) {
  struct rv_qp_attr a;
  memset(&a, 0, sizeof a);
  a.qp_state = rv_qps_init;
  a.port_num = (uint8_t)p->port;
  a.qp_access_flags = (unsigned)p->access;
  return v->modify_qp(qp, &a, rv_qp_state | rv_qp_pkey_index | rv_qp_port | rv_qp_access_flags);
}

int mscclpp_verbs_ready(mscclpp_verbs* v, struct rv_qp* qp, const mscclpp_verbs_path* p) {
  struct rv_qp_attr a;
  memset(&a, 0, sizeof a);
  a.qp_state = rv_qps_rtr;
  a.path_mtu = p->mtu;
  a.dest_qp_num = p->peer_qpn;
  a.rq_psn = p->peer_psn;
  a.max_dest_rd_atomic = p->accepted;
  a.min_rnr_timer = 12;
  a.ah_attr.port_num = (uint8_t)p->port;
  a.ah_attr.dlid = p->lid;
  a.ah_attr.sl = p->level;
  if (p->global) {
    a.ah_attr.is_global = 1;
    memcpy(a.ah_attr.grh.dgid, p->gid, sizeof p->gid);
    a.ah_attr.grh.sgid_index = (uint8_t)p->gid_index;
    a.ah_attr.grh.hop_limit = 255;
    a.ah_attr.grh.traffic_class = p->traffic_class;
  }
  const int err = v->modify_qp(qp, &a,
                               rv_qp_state | rv_qp_av | rv_qp_path_mtu | rv_qp_dest_qpn | rv_qp_rq_psn | rv_qp_max_dest_rd_atomic |
                                   rv_qp_min_rnr_timer);
  if (err != 0) return err;
  memset(&a, 0, sizeof a);
  a.qp_state = rv_qps_rts;
  a.timeout = p->timeout;
  a.retry_cnt = p->retries;
  a.rnr_retry = p->rnr_retries;
  a.sq_psn = p->own_psn;
  a.max_rd_atomic = p->initiated;
  return v->modify_qp(qp, &a,
                      rv_qp_state | rv_qp_timeout | rv_qp_retry_cnt | rv_qp_rnr_retry | rv_qp_sq_psn | rv_qp_max_qp_rd_atomic);
}

static inline int poll_queue(uintptr_t queue, struct rv_wc* out, int most) {
  struct rv_cq* const cq = (struct rv_cq*)queue;
  return cq->context->ops.poll_cq(cq, most, out);
}

// Puts a request together, as one without a successor.
static inline void assemble(struct rv_send_wr* wr, struct rv_sge* sge, const mscclpp_verbs_op* o) {
  *sge = (struct rv_sge){o->local, o->bytes, o->lkey};
  wr->wr_id = o->id;
  wr->next = NULL;
  wr->sg_list = sge;
  wr->num_sge = o->bytes > 0;
  wr->opcode = o->opcode;
  wr->send_flags = o->flags;
  wr->imm_data = htonl((uint32_t)o->value);
  if (o->opcode == rv_wr_fetch_and_add) {
    wr->wr.atomic.remote_addr = o->remote;
    wr->wr.atomic.compare_add = o->value;
    wr->wr.atomic.swap = 0;
    wr->wr.atomic.rkey = o->rkey;
  } else {
    wr->wr.rdma.remote_addr = o->remote;
    wr->wr.rdma.rkey = o->rkey;
  }
}

void mscclpp_verbs_prepare(mscclpp_verbs_ready_made* r, const mscclpp_verbs_op* op) { assemble(&r->wr, &r->sge, op); }

void mscclpp_verbs_again(uintptr_t ready_made) {
  mscclpp_verbs_ready_made* const r = (mscclpp_verbs_ready_made*)ready_made;
  struct rv_send_wr* bad = NULL;
  const int err = r->qp->context->ops.post_send(r->qp, &r->wr, &bad);
  r->came = err > 0 ? -err : err;
  if (err == 0 && r->most > 0) {
    const int came = poll_queue((uintptr_t)r->cq, r->out, r->most);
    r->came = came > 0 ? came : 0;
  }
}

int mscclpp_verbs_post(uintptr_t pair, const mscclpp_verbs_op* ops, int n, uintptr_t queue, struct rv_wc* out, int most, int* posted) {
  struct rv_qp* const qp = (struct rv_qp*)pair;
  struct rv_send_wr wr[mscclpp_verbs_batch];
  struct rv_sge sge[mscclpp_verbs_batch];
  *posted = 0;
  if (n < 1 || n > mscclpp_verbs_batch) return -EINVAL;
  for (int i = 0; i < n; ++i) {
    assemble(&wr[i], &sge[i], &ops[i]);
    if (i > 0) wr[i - 1].next = &wr[i];
  }
  struct rv_send_wr* bad = NULL;
  const int err = qp->context->ops.post_send(qp, wr, &bad);
  if (err != 0) {
    *posted = bad != NULL ? (int)(bad - wr) : 0;
    return err > 0 ? -err : err;
  }
  const int came = most > 0 ? poll_queue(queue, out, most) : 0;
  return came > 0 ? came : 0;
}

int mscclpp_verbs_post_receives(struct rv_qp* qp, int n) {
  struct rv_recv_wr wr, *bad = NULL;
  memset(&wr, 0, sizeof wr);
  int err = 0;
  for (int i = 0; i < n && err == 0; ++i) err = qp->context->ops.post_recv(qp, &wr, &bad);
  return err;
}

int mscclpp_verbs_poll(uintptr_t queue, struct rv_wc* out, int most) { return poll_queue(queue, out, most); }

int mscclpp_verbs_arm(struct rv_cq* cq) { return cq->context->ops.req_notify_cq(cq, 0); }

int mscclpp_verbs_event(mscclpp_verbs* v, struct rv_comp_channel* channel, int timeout_ms) {
  struct pollfd p = {channel->fd, POLLIN, 0};
  if (poll(&p, 1, timeout_ms) <= 0) return 0;
  struct rv_cq* cq = NULL;
  void* unused = NULL;
  if (v->get_cq_event(channel, &cq, &unused) != 0) return 0;
  v->ack_cq_events(cq, 1);
  return 1;
}
