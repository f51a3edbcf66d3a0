/* Device communicators: what kernels that were compiled with NCCL's headers take to reach their peers' memory. Loads, stores and
 * barriers among GPUs that map each other's memory are provided; multicast and messages over networks are not. */
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "export.h"
#include "fork.h"
#include "group.h"
#include "log.h"
#include "windows.h"

/* ---- what callers give: their header decides how it is laid out ---- */

struct team {
  int ranks, rank, stride;
};

struct resource { /* a part of the memory that a device communicator has on every rank */
  struct resource* next;
  size_t size, align;
  uint32_t* handle; /* NULL, or where its offset goes, in units of 128 bytes */
  int signals, counters;
  uint32_t *first_signal, *first_counter;
};

struct team_wish {
  struct team_wish* next;
  struct team team;
  _Bool multicast;
  void** handle;
};

struct wishes { /* of 2.28.7 on; since 2.29 behind struct wishes_head */
  struct resource* resources;
  struct team_wish* teams;
  _Bool multicast;
  int barriers, lsa_barriers, rail_barriers;
  int lla2a_blocks, lla2a_slots;
  _Bool force_gin;
  int contexts, signals, counters;
};

struct wishes_head {
  size_t size;
  unsigned magic, version;
};

enum { MAGIC = 0xcafebeef, UNIT = 128 };

struct barrier {
  uint32_t buffer;
  int count;
};

/* A layout of ncclDevComm: the fields that are used lie as in 2.28, since 2.30 behind magic and version. */
struct layout {
  unsigned until; /* versions below it */
  size_t head, size;
};
static const struct layout layouts[] = {{22907, 0, 200}, {23000, 0, 224}, {23100, 8, 240}};

/* layout_of says how a caller's structures are laid out. Version 2.28 has nothing in front of its wishes, where newer ones have a magic number. */
static const struct layout* layout_of(const void* wishes, unsigned* version, const struct wishes** w) {
  const struct wishes_head* h = wishes;
  *version = 22809;
  *w = wishes;
  if (h->magic == MAGIC) {
    *version = h->version;
    *w = (const struct wishes*)(h + 1);
  }
  for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
    if (*version < layouts[i].until) return &layouts[i];
  return NULL;
}

/* What goes into ncclDevComm. */
struct contents {
  struct window_on_device window; /* of the resources */
  ncclWindow_t at;
  void* table;
  struct barrier lsa;
  uint32_t rail; /* buffer of the barrier of rails, each of one rank here */
};

static uint32_t reciprocal(uint32_t x) { return UINT32_MAX / x + ((x & (x - 1)) == 0); }

static void put(char* to, size_t* at, const void* value, size_t size) {
  memcpy(to + *at, value, size);
  *at += size;
}

static void write_out(void* out, const struct layout* l, unsigned version, ncclComm_t comm, const struct contents* c) {
  char* to = out;
  size_t at = 0;
  uint32_t head[2] = {MAGIC, version};
  uint32_t ranks = (uint32_t)comm->nranks, rank = (uint32_t)comm->rank;
  uint32_t places[6] = {rank, ranks, reciprocal(ranks), rank, ranks, reciprocal(ranks)};
  memset(to, 0, l->size);
  put(to, &at, head, l->head);
  put(to, &at, places, sizeof places);
  put(to, &at, &c->table, sizeof c->table);
  put(to, &at, &c->at, sizeof c->at);
  put(to, &at, &c->window, 72); /* of which 2.30 has addresses and strides alone */
  at += 8; /* no multicast */
  put(to, &at, &c->lsa, sizeof c->lsa);
  put(to, &at, (uint32_t[]){0, c->rail}, 8);
}

/* ---- making ---- */

static ncclResult_t refuse(const char* what) {
  return fail(ncclInvalidUsage, "ncclDevCommCreate : %s: loads, stores and barriers among GPUs that map each other's memory are supported alone", what);
}

/* check refuses what needs multicast or networks. It is decided here, before any other rank is asked: all have the same wishes. */
static ncclResult_t check(ncclComm_t comm, const struct wishes* w) {
  if (!windows_domain(comm))
    return fail(ncclInvalidUsage, "ncclDevCommCreate : the ranks are not all on GPUs that map each other's memory, which a device communicator needs");
  if (w->multicast) return refuse("lsaMultimem asks for multicast");
  if (w->force_gin || w->signals || w->counters) return refuse("messages over networks (GIN)");
  if (w->barriers < 0 || w->lsa_barriers < 0 || w->rail_barriers < 0) return fail(ncclInvalidArgument, "ncclDevCommCreate : a number of barriers is negative");
  for (const struct team_wish* t = w->teams; t; t = t->next)
    if (t->multicast) return refuse("a team asks for multicast");
  for (const struct resource* r = w->resources; r; r = r->next) {
    if (r->signals || r->counters) return refuse("a resource asks for signals of networks (GIN)");
    if (r->align & (r->align - 1)) return fail(ncclInvalidArgument, "ncclDevCommCreate : alignment %zu of a resource: expected a power of two", r->align);
  }
  return ncclSuccess;
}

/* lay gives a resource its place behind the others. */
static void lay(struct resource* r, size_t* end) {
  size_t align = r->align > UNIT ? r->align : UNIT;
  *end = (*end + align - 1) & ~(align - 1);
  if (r->handle) *r->handle = (uint32_t)(*end / UNIT);
  *end += r->size;
}

static size_t barrier_bytes(int barriers, int ranks) { return (size_t)barriers * (size_t)(3 + ranks) * sizeof(uint32_t); }

static int larger(int a, int b) { return a > b ? a : b; }

/* A device communicator that is being made. */
struct making {
  struct work work; /* first: they are the same address */
  struct wishes wishes;
  const struct layout* layout;
  unsigned version;
  void* out;
};

static ncclResult_t run_create(struct work* w) {
  struct making* m = (struct making*)w;
  struct contents c = {0};
  size_t end = 0;
  struct window* window = NULL;
  for (struct resource* r = m->wishes.resources; r; r = r->next) lay(r, &end);
  /* A barrier of the world is one of its only domain, and one of a rail, which is of one rank and so ends at once. */
  c.lsa.count = larger(m->wishes.barriers, m->wishes.lsa_barriers);
  struct resource lsa = {.size = barrier_bytes(c.lsa.count, w->comm->nranks), .handle = &c.lsa.buffer};
  struct resource rail = {.size = (size_t)larger(m->wishes.barriers, m->wishes.rail_barriers) * 4 * sizeof(uint32_t), .handle = &c.rail};
  lay(&lsa, &end);
  lay(&rail, &end);
  ncclResult_t r = windows_table(w->comm, &c.table);
  if (r == ncclSuccess && end > 0) {
    r = window_open(w->comm, NULL, end, 0, &window);
    if (r == ncclSuccess && window == NULL)
      r = fail(ncclInvalidUsage, "ncclDevCommCreate : memory of the ranks cannot be mapped side by side: %s", door_opened()->error());
    if (r != ncclSuccess) return r;
    c.at = window->at;
    c.window = (struct window_on_device){.host = window, .flat = window->inner.base, .lsa_rank = w->comm->rank, .rank = w->comm->rank,
                                         .stride = (uint32_t)(window->inner.stride >> 32)};
  }
  if (r == ncclSuccess) write_out(m->out, m->layout, m->version, w->comm, &c);
  return r;
}

static void create_done(struct work* w, ncclResult_t r) {
  ncclComm_t comm = w->comm;
  (void)r;
  free(w);
  comm_leave(comm);
}

EXPORT(ncclResult_t, DevCommCreate, ncclComm_t comm, const void* requirements, void* out) {
  if (after_fork()) return fork_refusal("ncclDevCommCreate");
  group_begin();
  ncclResult_t r = comm_enter(comm, "ncclDevCommCreate", NEED_READY);
  if (r != ncclSuccess) return group_end(r);
  struct making* m = NULL;
  const struct wishes* w = NULL;
  if (requirements == NULL || out == NULL) {
    r = fail(ncclInvalidArgument, "ncclDevCommCreate : %s argument is NULL", out ? "reqs" : "outDevComm");
  } else if ((m = calloc(1, sizeof *m)) == NULL) {
    r = fail(ncclSystemError, "ncclDevCommCreate : out of memory");
  } else if ((m->layout = layout_of(requirements, &m->version, &w)) == NULL) {
    r = fail(ncclInvalidUsage, "ncclDevCommCreate : the program was compiled with the device interface of version %u: expected 2.28.7 to 2.30", m->version);
  } else {
    m->wishes = *w;
    r = check(comm, &m->wishes);
  }
  if (r != ncclSuccess) {
    free(m);
    comm_leave(comm);
    return group_end(r);
  }
  m->out = out;
  m->work = (struct work){.comm = comm, .parent = comm, .run = run_create, .done = create_done, .what = "ncclDevCommCreate"};
  return group_end(group_work(&m->work));
}

EXPORT(ncclResult_t, DevCommDestroy, ncclComm_t comm, const void* devcomm) {
  if (devcomm == NULL || after_fork()) return ncclSuccess;
  ncclResult_t r = comm_enter(comm, "ncclDevCommDestroy", NEED_ALIVE);
  if (r != ncclSuccess) return r;
  ncclWindow_t window;
  memcpy(&window, (const char*)devcomm + (*(const uint32_t*)devcomm == MAGIC ? 40 : 32), sizeof window);
  if (window != NULL && !window_close(comm, window, 1))
    r = fail(ncclInvalidUsage, "ncclDevCommDestroy : %p is no device communicator of this communicator", devcomm);
  comm_leave(comm);
  return r;
}

/* ---- parts that programs ask for themselves ---- */

EXPORT(ncclResult_t, LsaBarrierCreateRequirement, struct team team, int barriers, struct barrier* handle, struct resource* out) {
  if (handle == NULL || out == NULL) return fail(ncclInvalidArgument, "ncclLsaBarrierCreateRequirement : %s argument is NULL", out ? "outHandle" : "outReq");
  if (barriers < 0 || team.ranks < 1) return fail(ncclInvalidArgument, "ncclLsaBarrierCreateRequirement : %d barriers of %d ranks", barriers, team.ranks);
  *handle = (struct barrier){.count = barriers};
  *out = (struct resource){.size = barrier_bytes(barriers, team.ranks), .align = sizeof(uint32_t), .handle = &handle->buffer};
  return ncclSuccess;
}

/* Slots of 16 bytes, of which each element takes as many as it has parts of 8. */
EXPORT(int, LLA2ACalcSlots, int elements, int size) { return elements * ((size + 7) / 8); }

EXPORT(ncclResult_t, LLA2ACreateRequirement, int blocks, int slots, struct barrier* handle, struct resource* out) {
  if (handle == NULL || out == NULL) return fail(ncclInvalidArgument, "ncclLLA2ACreateRequirement : %s argument is NULL", out ? "outHandle" : "outReq");
  if (blocks < 0 || slots < 0) return fail(ncclInvalidArgument, "ncclLLA2ACreateRequirement : %d blocks of %d slots", blocks, slots);
  *handle = (struct barrier){.count = slots};
  *out = (struct resource){.size = (size_t)blocks * (1 + 2 * (size_t)slots) * 16, .align = 16, .handle = &handle->buffer};
  return ncclSuccess;
}

/* ---- teams: values, not results ---- */

static struct team world(ncclComm_t comm) {
  if (comm_enter(comm, "ncclTeamWorld", NEED_READY) != ncclSuccess) return (struct team){0, 0, 1};
  struct team t = {comm->nranks, comm->rank, 1};
  comm_leave(comm);
  return t;
}

/* lsa is the domain of loads and stores: all ranks, or this one alone. */
static struct team lsa(ncclComm_t comm) {
  struct team t = world(comm);
  return t.ranks > 0 && windows_domain(comm) ? t : (struct team){1, 0, 1};
}

EXPORT(struct team, TeamWorld, ncclComm_t comm) { return world(comm); }
EXPORT(struct team, TeamLsa, ncclComm_t comm) { return lsa(comm); }

/* A rail has a rank of each domain. */
EXPORT(struct team, TeamRail, ncclComm_t comm) {
  struct team w = world(comm), l = lsa(comm);
  return (struct team){w.ranks / l.ranks, w.rank / l.ranks, l.ranks};
}

EXPORT(int, TeamRankToWorld, ncclComm_t comm, struct team team, int rank) { return world(comm).rank + (rank - team.rank) * team.stride; }

EXPORT(int, TeamRankToLsa, ncclComm_t comm, struct team team, int rank) { return lsa(comm).rank + (rank - team.rank) * team.stride; }
