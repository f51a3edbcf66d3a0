#ifndef MSCCLPP_VERBS_ABI_H
#define MSCCLPP_VERBS_ABI_H

// The layouts that libibverbs.so.1 and its callers share, as far as they are used here: they
// are part of its binary interface, which has been stable since its first version. Written
// out, so that building needs no headers of a library that may be absent where the
// program runs. A test compares them with the headers where those are installed.
//
// Names are those of the library with rv_ in place of ibv_. Structures that the library
// allocates end here with the last member that is used.

#include <stddef.h>
#include <stdint.h>

struct rv_cq;
struct rv_qp;
struct rv_wc;
struct rv_send_wr;
struct rv_recv_wr;

struct rv_context_ops {
  void* unused_a[11];
  int (*poll_cq)(struct rv_cq*, int, struct rv_wc*);
  int (*req_notify_cq)(struct rv_cq*, int);
  void* unused_b[12];
  int (*post_send)(struct rv_qp*, struct rv_send_wr*, struct rv_send_wr**);
  int (*post_recv)(struct rv_qp*, struct rv_recv_wr*, struct rv_recv_wr**);
  void* unused_c[5];
};

struct rv_context {
  void* device;
  struct rv_context_ops ops;
  int cmd_fd;
  int async_fd;
};

struct rv_pd {
  struct rv_context* context;
};

struct rv_mr {
  struct rv_context* context;
  struct rv_pd* pd;
  void* addr;
  size_t length;
  uint32_t handle, lkey, rkey;
};

struct rv_comp_channel {
  struct rv_context* context;
  int fd;
};

struct rv_cq {
  struct rv_context* context;
};

struct rv_qp {
  struct rv_context* context;
  void* qp_context;
  struct rv_pd* pd;
  struct rv_cq *send_cq, *recv_cq;
  void* srq;
  uint32_t handle, qp_num;
};

struct rv_device_attr {
  char fw_ver[64];
  uint64_t node_guid, sys_image_guid, max_mr_size, page_size_cap;
  uint32_t vendor_id, vendor_part_id, hw_ver;
  int max_qp, max_qp_wr;
  unsigned device_cap_flags;
  int max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd;
  int max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom;
  int atomic_cap;
  int unused[14];
  uint16_t max_pkeys;
  uint8_t local_ca_ack_delay, phys_port_cnt;
};

struct rv_port_attr {
  int state, max_mtu, active_mtu, gid_tbl_len;
  uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
  uint16_t pkey_tbl_len, lid, sm_lid;
  uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed, phys_state, link_layer, flags;
  uint16_t port_cap_flags2;
};

struct rv_gid_entry {
  uint8_t gid[16];
  uint32_t gid_index, port_num, gid_type, ndev_ifindex;
} __attribute__((aligned(8)));

struct rv_qp_cap {
  uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct rv_qp_init_attr {
  void* qp_context;
  struct rv_cq *send_cq, *recv_cq;
  void* srq;
  struct rv_qp_cap cap;
  int qp_type, sq_sig_all;
};

struct rv_global_route {
  uint8_t dgid[16] __attribute__((aligned(8)));
  uint32_t flow_label;
  uint8_t sgid_index, hop_limit, traffic_class;
};

struct rv_ah_attr {
  struct rv_global_route grh;
  uint16_t dlid;
  uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct rv_qp_attr {
  int qp_state, cur_qp_state, path_mtu, path_mig_state;
  uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
  unsigned qp_access_flags;
  struct rv_qp_cap cap;
  struct rv_ah_attr ah_attr, alt_ah_attr;
  uint16_t pkey_index, alt_pkey_index;
  uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry,
      alt_port_num, alt_timeout;
  uint32_t rate_limit;
};

struct rv_sge {
  uint64_t addr;
  uint32_t length, lkey;
};

struct rv_send_wr {
  uint64_t wr_id;
  struct rv_send_wr* next;
  struct rv_sge* sg_list;
  int num_sge, opcode;
  unsigned send_flags;
  uint32_t imm_data;  // network order
  union {
    struct {
      uint64_t remote_addr;
      uint32_t rkey;
    } rdma;
    struct {
      uint64_t remote_addr, compare_add, swap;
      uint32_t rkey;
    } atomic;
  } wr;
  uint64_t unused[7];
};

struct rv_recv_wr {
  uint64_t wr_id;
  struct rv_recv_wr* next;
  struct rv_sge* sg_list;
  int num_sge;
};

struct rv_wc {
  uint64_t wr_id;
  int status, opcode;
  uint32_t vendor_err, byte_len, imm_data, qp_num, src_qp;
  unsigned wc_flags;
  uint16_t pkey_index, slid;
  uint8_t sl, dlid_path_bits;
};

enum {
  rv_port_active = 4,
  rv_link_layer_ethernet = 2,
  rv_atomic_none = 0,

  rv_gid_ib = 0,
  rv_gid_roce_v1 = 1,
  rv_gid_roce_v2 = 2,

  rv_qpt_rc = 2,
  rv_qps_reset = 0,
  rv_qps_init = 1,
  rv_qps_rtr = 2,
  rv_qps_rts = 3,
  rv_qps_err = 6,

  rv_qp_state = 1 << 0,
  rv_qp_access_flags = 1 << 3,
  rv_qp_pkey_index = 1 << 4,
  rv_qp_port = 1 << 5,
  rv_qp_av = 1 << 7,
  rv_qp_path_mtu = 1 << 8,
  rv_qp_timeout = 1 << 9,
  rv_qp_retry_cnt = 1 << 10,
  rv_qp_rnr_retry = 1 << 11,
  rv_qp_rq_psn = 1 << 12,
  rv_qp_max_qp_rd_atomic = 1 << 13,
  rv_qp_min_rnr_timer = 1 << 15,
  rv_qp_sq_psn = 1 << 16,
  rv_qp_max_dest_rd_atomic = 1 << 17,
  rv_qp_dest_qpn = 1 << 20,

  rv_access_local_write = 1 << 0,
  rv_access_remote_write = 1 << 1,
  rv_access_remote_read = 1 << 2,
  rv_access_remote_atomic = 1 << 3,
  rv_access_relaxed_ordering = 1 << 20,

  rv_wr_rdma_write = 0,
  rv_wr_rdma_write_with_imm = 1,
  rv_wr_rdma_read = 4,
  rv_wr_fetch_and_add = 6,

  rv_send_fence = 1 << 0,
  rv_send_signaled = 1 << 1,
  rv_send_inline = 1 << 3,

  rv_wc_wr_flush_err = 5,
};

#endif
