// The peer of our port channels over verbs: a bare loop that posts the work requests that
// ib-host posts for a put with a signal, a write and a fetch-and-add behind it in one
// call, and waits for the same of the other side in memory.
//
//   peer DEVICE BYTES:ITERATIONS …
//
// It becomes two processes, each with its own device context, queue pair and memory. Both
// wait as ours do: at full speed for 20 µs, then yielding. One JSON object a line goes to
// stdout for each point; half is the median of half a round trip in µs.
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kWarmup = 50, kDepth = 256, kInline = 64, kRoom = 1 << 20, kSpinNs = 20000, kLimitS = 60 };

// The message of one side to the other.
typedef struct {
  uint32_t qpn, psn, rkey;
  uint64_t addr;
  union ibv_gid gid;
} Address;

// Where things are in the memory of a side: what it sends comes first.
enum { kIn = kRoom, kToken = 2 * kRoom, kResult = 2 * kRoom + 64, kBytes = 2 * kRoom + 4096 };

static int side, line;
static char* memory;
static struct ibv_cq* cq;
static struct ibv_qp* qp;
static struct ibv_mr* mr;
static Address own, theirs;

static void fail(const char* what) {
  fprintf(stderr, "peer: side %d: %s: %s\n", side, what, strerror(errno));
  exit(2);
}

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_value(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void meet(const void* say, void* hear, size_t bytes) {
  if (write(line, say, bytes) != (ssize_t)bytes || read(line, hear, bytes) != (ssize_t)bytes) fail("the other side");
}

// The first address of RoCE v2 over IPv4, else of RoCE v2.
static int pick(struct ibv_context* c, int entries, union ibv_gid* gid) {
  int best = -1, worth = 0;
  for (int i = 0; i < entries; i++) {
    struct ibv_gid_entry e;
    if (ibv_query_gid_ex(c, 1, (uint32_t)i, &e, 0) != 0 || e.gid_type != IBV_GID_TYPE_ROCE_V2) continue;
    const int v = e.gid.raw[10] == 0xff && e.gid.raw[11] == 0xff ? 2 : 1;
    if (v > worth) worth = v, best = i, *gid = e.gid;
  }
  if (best < 0) errno = ENODEV, fail("an address of RoCE v2");
  return best;
}

static struct ibv_context* open_device(const char* name) {
  int n = 0;
  struct ibv_device** list = ibv_get_device_list(&n);
  for (int i = 0; i < n; i++) {
    if (strcmp(ibv_get_device_name(list[i]), name) != 0) continue;
    struct ibv_context* c = ibv_open_device(list[i]);
    if (c == NULL) fail(name);
    return c;
  }
  errno = ENODEV;
  fail(name);
  return NULL;
}

static void join(const char* device) {
  struct ibv_context* c = open_device(device);
  struct ibv_port_attr port;
  struct ibv_pd* pd = ibv_alloc_pd(c);
  if (pd == NULL || ibv_query_port(c, 1, &port) != 0) fail("port 1");
  const int index = pick(c, port.gid_tbl_len, &own.gid);
  if (posix_memalign((void**)&memory, 4096, kBytes) != 0) fail("memory");
  memset(memory, 0, kBytes);
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  mr = ibv_reg_mr(pd, memory, kBytes, access);
  cq = ibv_create_cq(c, kDepth + 1, NULL, NULL, 0);
  if (mr == NULL || cq == NULL) fail("registration and queue");
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
  init.cap = (struct ibv_qp_cap){.max_send_wr = kDepth, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = kInline};
  if ((qp = ibv_create_qp(pd, &init)) == NULL) fail("queue pair");
  own.qpn = qp->qp_num, own.psn = 100 + (uint32_t)side, own.rkey = mr->rkey, own.addr = (uint64_t)(uintptr_t)memory;
  meet(&own, &theirs, sizeof own);
  struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)access};
  if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0) fail("INIT");
  a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .dest_qp_num = theirs.qpn, .rq_psn = theirs.psn};
  a.max_dest_rd_atomic = 16, a.min_rnr_timer = 12;
  a.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1};
  a.ah_attr.grh = (struct ibv_global_route){.dgid = theirs.gid, .sgid_index = (uint8_t)index, .hop_limit = 255};
  const int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC;
  if (ibv_modify_qp(qp, &a, rtr | IBV_QP_MIN_RNR_TIMER) != 0) fail("RTR");
  a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 16, .retry_cnt = 6, .rnr_retry = 6, .sq_psn = own.psn, .max_rd_atomic = 16};
  const int rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  if (ibv_modify_qp(qp, &a, rts) != 0) fail("RTS");
  char ready = 1;
  meet(&ready, &ready, 1);
}

static int outstanding;

static void post(uint32_t bytes) {
  const uint64_t base = (uint64_t)(uintptr_t)memory;
  struct ibv_sge data = {base, bytes, mr->lkey}, result = {base + kResult, 8, mr->lkey};
  struct ibv_send_wr add = {.sg_list = &result, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED};
  add.wr.atomic.remote_addr = theirs.addr + kToken, add.wr.atomic.compare_add = 1, add.wr.atomic.rkey = theirs.rkey;
  struct ibv_send_wr put = {.next = &add, .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
  put.send_flags = bytes <= kInline ? IBV_SEND_INLINE : 0;
  put.wr.rdma.remote_addr = theirs.addr + kIn, put.wr.rdma.rkey = theirs.rkey;
  struct ibv_send_wr* bad = NULL;
  if ((errno = ibv_post_send(qp, &put, &bad)) != 0) fail("post");
  outstanding++;
}

static void reap(void) {
  struct ibv_wc wc[16];
  if (outstanding == 0) return;
  const int n = ibv_poll_cq(cq, 16, wc);
  if (n < 0) fail("completions");
  for (int i = 0; i < n; i++) {
    if (wc[i].status != IBV_WC_SUCCESS) {
      fprintf(stderr, "peer: side %d: %s\n", side, ibv_wc_status_str(wc[i].status));
      exit(2);
    }
  }
  outstanding -= n;
}

// Waits for the n-th signal; completions are taken on the way.
static void await(uint64_t n) {
  uint64_t start = 0;
  for (unsigned i = 0; __atomic_load_n((uint64_t*)(memory + kToken), __ATOMIC_ACQUIRE) < n; i++) {
    reap();
    if (i % 32 != 31) continue;
    const uint64_t now = now_ns();
    if (start == 0) start = now;
    if (now - start > kSpinNs) sched_yield();
    if (now - start > kLimitS * 1000000000ull) errno = ETIMEDOUT, fail("no signal");
  }
}

static void measure(uint32_t bytes, int iterations) {
  static uint64_t signals;
  double* samples = malloc(sizeof *samples * (size_t)iterations);
  if (samples == NULL) fail("memory for samples");
  memset(memory, side + 1, bytes);
  char ready = 1;
  meet(&ready, &ready, 1);
  for (int i = -kWarmup; i < iterations; i++) {
    const uint64_t start = now_ns();
    signals++;
    if (side == 0) post(bytes);
    await(signals);
    if (side == 1) post(bytes);
    if (i >= 0) samples[i] = (double)(now_ns() - start) / 2000;
  }
  if (bytes > 0 && memory[kIn + bytes - 1] != 2 - side) {
    fprintf(stderr, "peer: side %d: the last byte is %d, expected %d\n", side, memory[kIn + bytes - 1], 2 - side);
    exit(2);
  }
  if (side == 0) {
    qsort(samples, (size_t)iterations, sizeof *samples, by_value);
    const double median = iterations % 2 ? samples[iterations / 2] : (samples[iterations / 2 - 1] + samples[iterations / 2]) / 2;
    printf("{\"what\":\"put+signal\",\"bytes\":%u,\"iterations\":%d,\"us\":%.3f}\n", bytes, iterations, median);
    fflush(stdout);
  }
  free(samples);
}

int main(int argc, char** argv) {
  int ends[2];
  if (argc < 3) {
    fprintf(stderr, "peer: expected DEVICE BYTES:ITERATIONS …\n");
    return 2;
  }
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) fail("socket pair");
  const pid_t child = fork(); // before the library is used: it does not survive a fork
  if (child < 0) fail("fork");
  side = child == 0;
  line = ends[side];
  close(ends[!side]);
  join(argv[1]);
  for (int i = 2; i < argc; i++) {
    unsigned bytes;
    int iterations;
    char rest;
    if (sscanf(argv[i], "%u:%d%c", &bytes, &iterations, &rest) != 2 || bytes > kRoom || iterations < 1) {
      fprintf(stderr, "peer: %s: expected BYTES:ITERATIONS\n", argv[i]);
      return 2;
    }
    measure(bytes, iterations);
  }
  while (outstanding > 0) reap();
  char done = 1;
  meet(&done, &done, 1);
  int status = 0;
  if (side == 0 && (waitpid(child, &status, 0) < 0 || status != 0)) return 2;
  return 0;
}
