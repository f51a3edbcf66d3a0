/* The C interface of mscclpp-go. This file has communicators, collectives and memory, and includes the files that
 * have the rest: mscclpp_channels.h (channels, kernels of the program, proxies) and mscclpp_plans.h. A program that
 * serves models includes mscclpp_inference.h too.
 *
 * Versions. The interface is 0.x: it may still change. MSCCLPP_ABI_VERSION counts the changes that need a new
 * compilation; compare it with mscclpp_abi_version(). A structure begins with its size in bytes, set by the macro
 * beside its type. A library that is older than the program refuses a longer structure if what it does not
 * know is not 0, and one that is newer takes the default for each member that is missing. Devices, transports
 * and algorithms are named by strings, and so are abilities (mscclpp_supports).
 *
 * Errors. A function returns MSCCLPP_SUCCESS or a code. mscclpp_last_error() then has the text, and
 * mscclpp_last_error_rank() the rank that failed if the error names one. Both belong to the calling
 * thread. After an error, results that a function writes are NULL or 0.
 *
 * Handles. A handle is a number, not an address: NULL, garbage, and handles that were destroyed are
 * recognized, and refused with MSCCLPP_INVALID.
 *
 * Threads. Functions may be called from any thread, unless their comment says otherwise. Calls on
 * one communicator that need other ranks must be made in the same order on all ranks. What a comment
 * calls "collective" waits for all ranks of the communicator. No function may be called in a signal
 * handler, nor in a destructor or a function of atexit.
 *
 * Processes. The library runs Go's runtime in threads of its own, on which all signals of the program
 * are blocked. It cannot be unloaded. After fork() every function in the child refuses
 * with MSCCLPP_INVALID, except those that destroy or abort, which do nothing and return MSCCLPP_SUCCESS.
 * A child that calls exec is not affected.
 *
 * Sizes are in bytes, times in nanoseconds, and counts in elements, unless a comment says otherwise. */
#ifndef MSCCLPP_H_
#define MSCCLPP_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MSCCLPP_VERSION "0.1.0"
#define MSCCLPP_ABI_VERSION 1

/* Results ------------------------------------------------------------------------------------ */

typedef int32_t mscclpp_result_t;

enum {
  MSCCLPP_SUCCESS = 0,
  MSCCLPP_UNAVAILABLE = 1, /* possible in principle, but not on this machine, or not now */
  MSCCLPP_UNSUPPORTED = 2, /* never done by this library, device or transport */
  MSCCLPP_INVALID = 3,     /* a mistake of the caller */
  MSCCLPP_PEER = 4,        /* another rank failed or died */
  MSCCLPP_CLOSED = 5,      /* used after it was aborted or closed */
  MSCCLPP_PLUGIN = 6,      /* the process of a transport is gone */
  MSCCLPP_TIMEOUT = 7,     /* the time for a call that waits for other ranks has passed */
  MSCCLPP_IN_PROGRESS = 8, /* the communicator was not joined yet; of mscclpp_comm_status alone */
  MSCCLPP_FAILED = 9       /* anything else; the text says what */
};

/* mscclpp_abi_version returns the MSCCLPP_ABI_VERSION of the library. It never fails. */
uint32_t mscclpp_abi_version(void);

/* mscclpp_version returns the version of the library for people. Two libraries with the same text are
 * the same build, if neither is a development build. The text is valid for ever. */
const char *mscclpp_version(void);

/* mscclpp_result_name returns the name of a code, such as "MSCCLPP_PEER", for ever valid; "unknown result" for other numbers. */
const char *mscclpp_result_name(mscclpp_result_t result);

/* mscclpp_last_error returns the text of the last error of a function on this thread, "" if there
 * was none. The text is valid until the next error on this thread. */
const char *mscclpp_last_error(void);

/* mscclpp_last_error_rank returns the rank to which the last error of this thread attributes the failure, -1 if to none. */
int32_t mscclpp_last_error_rank(void);

/* mscclpp_setting writes the value of a key of the configuration that a communicator would be made with: of the files, the variables and the
 * defaults, as "mscclpp-run config" has it. MSCCLPP_INVALID: a mistake in these, a key that there is not, or a value that is longer than size. */
mscclpp_result_t mscclpp_setting(const char *key, char *value, size_t size);

/* mscclpp_supports returns 1 if the library has an ability, else 0, also for unknown names and NULL.
 * The abilities of this version: "comm.environment", "comm.unique_id", "collectives", "groups",
 * "split", "abort", "leave", "log.callback", "memory.alloc", "memory.register", "windows", "windows.flat", "channels.memory",
 * "channels.port", "channels.switch", "kernels", "proxies", "plans.language", "plans.execute",
 * "plans.register", "traces", "inference.all_reduce_norm", "inference.moe", "device.host", "device.cuda". Whether the machine has what an
 * ability needs is said by the call that uses it. */
int mscclpp_supports(const char *ability);

/* Communicators ------------------------------------------------------------------------------ */

typedef struct mscclpp_comm *mscclpp_comm_t;

/* A unique id names a job, and says how to join it. It contains a secret: any process that has it can join. */
typedef struct {
  unsigned char bytes[128];
} mscclpp_unique_id_t;

enum { MSCCLPP_LOG_DEBUG = 0, MSCCLPP_LOG_INFO = 1, MSCCLPP_LOG_WARN = 2, MSCCLPP_LOG_ERROR = 3 };

/* A function for log messages gets them from any thread of the library, several at once never for
 * one communicator. It must not call the library, and should return soon. text is one line without its end, valid during the call. */
typedef void (*mscclpp_log_fn)(void *context, int level, const char *text);

typedef struct {
  size_t size;
  const mscclpp_unique_id_t *id; /* NULL: the launcher's variables say rank, ranks and the meeting point */
  int32_t rank, ranks;           /* with an id; else 0 */
  const char *device;            /* host, cuda, cuda:N, hip, hip:N or auto; NULL: host. Key "device" overrides it */
  const char *config_file;       /* NULL: the file that MSCCLPP_CONFIG names, if any */
  const char *const *settings;   /* of the configuration, each "key=value"; they override all others */
  size_t settings_count;
  mscclpp_log_fn log; /* NULL: standard error, or the file that the configuration names */
  void *log_context;
  uint64_t timeout; /* ns, of each call that waits for other ranks to get ready; 0: the configuration's */
  const char *version; /* of the program: ranks whose versions differ refuse to join; NULL: the same as "" */
  const char *const *defaults;   /* as settings, in the place of the library's own: files, variables and settings override them */
  size_t defaults_count;
} mscclpp_comm_options_t;
#define MSCCLPP_COMM_OPTIONS_INIT {sizeof(mscclpp_comm_options_t), NULL, 0, 0, NULL, NULL, NULL, 0, NULL, NULL, 0, NULL, NULL, 0}

/* mscclpp_unique_id_create makes an id. The process need not be a rank; ranks ask it where rank 0 is, so it has to live until
 * all have joined. An id serves one job, and may remain unused. address is the IP address or host name at which others reach this process,
 * NULL for those of this host's interfaces. Errors: MSCCLPP_INVALID for NULL, MSCCLPP_UNAVAILABLE if this host does not have the address. */
mscclpp_result_t mscclpp_unique_id_create(mscclpp_unique_id_t *id, const char *address);

/* mscclpp_comm_create makes a communicator that is not joined yet, and does not wait for other ranks. options may
 * be NULL. Without an id, and without a launcher's variables, the job has one rank. A process
 * may have several communicators with an id, but joins its launcher's job once. Errors: MSCCLPP_INVALID for
 * a configuration, device name or place that cannot be right. */
mscclpp_result_t mscclpp_comm_create(const mscclpp_comm_options_t *options, mscclpp_comm_t *comm);

/* mscclpp_comm_join waits for all ranks, starts the transports and prepares collectives. Collective.
 * Another thread may call mscclpp_comm_abort or mscclpp_comm_status meanwhile. Joining twice returns what the
 * first time did. Errors: MSCCLPP_TIMEOUT or MSCCLPP_PEER when ranks are missing, which the text
 * names; MSCCLPP_UNAVAILABLE for a device, plugin or kernel that this machine does not have. The communicator then has to be destroyed. */
mscclpp_result_t mscclpp_comm_join(mscclpp_comm_t comm);

/* mscclpp_comm_rank, mscclpp_comm_size: this rank's number, from 0, and how many there are, once the communicator was joined. */
mscclpp_result_t mscclpp_comm_rank(mscclpp_comm_t comm, int32_t *rank);
mscclpp_result_t mscclpp_comm_size(mscclpp_comm_t comm, int32_t *size);

/* mscclpp_comm_query writes the value of a property as text that ends with 0: "device" (host, cuda:0),
 * "device.name", "transports" (shm tcp), "shared" (1 if all ranks share memory), "name", "host", "host.id" (the same
 * for ranks of one host), "algorithms.allreduce" and so on for all collectives, "calls.repeated" (calls so far that were made
 * without Go, as ones like them had been made before). *size is the room at text, and then the bytes that the value needs. Errors: MSCCLPP_INVALID for an unknown property, and for too little room. */
mscclpp_result_t mscclpp_comm_query(mscclpp_comm_t comm, const char *property, char *text, size_t *size);

/* mscclpp_comm_exchange gives every rank the bytes of all: mine is bytes long, the same number on all ranks, and all
 * as many for each rank, in the order of the ranks. It goes by the network of the set-up, from and to memory of the
 * host, and is meant for what ranks agree on. Collective. */
mscclpp_result_t mscclpp_comm_exchange(mscclpp_comm_t comm, const void *mine, size_t bytes, void *all);

/* mscclpp_comm_status returns MSCCLPP_SUCCESS while the communicator works, MSCCLPP_IN_PROGRESS before
 * it was joined, and why it cannot be used any more after a failure. It never waits, and may be called
 * at any time, also while a call is in progress on another thread. */
mscclpp_result_t mscclpp_comm_status(mscclpp_comm_t comm);

/* mscclpp_comm_check is mscclpp_comm_status that also reports, once, errors of calls on a GPU that have
 * returned and whose kernels have run since. It may wait for a call that is being prepared. */
mscclpp_result_t mscclpp_comm_check(mscclpp_comm_t comm);

/* mscclpp_comm_split divides the communicator: ranks with the same color form a new one, in the order
 * of key, then of their rank. A rank with a negative color takes part, and gets NULL. Collective. */
mscclpp_result_t mscclpp_comm_split(mscclpp_comm_t comm, int32_t color, int32_t key, mscclpp_comm_t *out);

/* mscclpp_comm_shrink makes a communicator without some ranks, in the order of their numbers, for when these have failed
 * or are to leave. Only the ranks that stay call it, all with the same ranks in the list, whose order does not matter. The
 * result was not joined yet: mscclpp_comm_join on it waits for them. They meet anew, at an address that each of them has
 * told the others when comm was joined, so comm may have failed. It stays, and has to be ended. One communicator can be
 * made so at a time of those that belong to one job. With MSCCLPP_SHRINK_ABORT whatever runs on comm is stopped first.
 * Errors: MSCCLPP_INVALID for an empty list, a rank that comm does not have, and the caller in the list. */
#define MSCCLPP_SHRINK_ABORT 1u
mscclpp_result_t mscclpp_comm_shrink(mscclpp_comm_t comm, const int32_t *excluded, size_t count, uint32_t flags, mscclpp_comm_t *out);

/* mscclpp_comm_settle waits until the given streams of the device have no work left, at most timeout ns;
 * 0: without a limit. After a failure it ends within seconds. On the host there is nothing to wait for.
 *
 * Without streams it waits for what calls of the communicator have enqueued, by events that these have recorded: no
 * stream is asked, so the program may have destroyed those of its calls. MSCCLPP_UNSUPPORTED: that is not known,
 * since calls were captured into graphs; the program then waits for these. */
mscclpp_result_t mscclpp_comm_settle(mscclpp_comm_t comm, void *const *streams, size_t count, uint64_t timeout);

/* mscclpp_comm_destroy leaves in an orderly way, and frees everything that was made with the
 * communicator; handles of its memory, windows, channels, modules and proxies end with it. It waits
 * for no other rank. Work on a device must have ended: see mscclpp_comm_settle. A communicator that was split
 * off lives on. NULL is allowed. Another thread must not be in a call on it, except in those that
 * wait for ranks: these end with MSCCLPP_CLOSED. */
mscclpp_result_t mscclpp_comm_destroy(mscclpp_comm_t comm);

/* mscclpp_comm_abort ends the communicator at once and destroys the handle. It may be called while
 * other threads are in any call on it, takes no lock that these hold, and waits for nobody. Those calls end with an
 * error, kernels leave their waits, and what they use is freed when they are gone. The other ranks learn the cause, which may be NULL. NULL as
 * communicator is allowed. */
mscclpp_result_t mscclpp_comm_abort(mscclpp_comm_t comm, const char *cause);

/* mscclpp_comm_leave is mscclpp_comm_abort for this rank alone: the other ranks go on. A call of theirs that needs
 * this rank ends with MSCCLPP_PEER, and the text has the cause. */
mscclpp_result_t mscclpp_comm_leave(mscclpp_comm_t comm, const char *cause);

/* A function that takes text, a part at a time, not ended by 0. */
typedef void (*mscclpp_write_fn)(void *context, const char *text, size_t size);

/* mscclpp_comm_dump writes the state of the communicator and of all its channels, and the last call of
 * each rank, to find out why a job hangs. It may be called at any time, and waits for no other rank. */
mscclpp_result_t mscclpp_comm_dump(mscclpp_comm_t comm, mscclpp_write_fn write, void *context);

/* mscclpp_trace_start has this rank write records of its calls from now on, for `mscclpp-run --trace` and `mscclpp-run trace
 * --job`, and mscclpp_trace_stop ends that: under --trace records are on from the start. Both are about the rank, with all of its
 * communicators, and wait for no other rank. Errors of start: MSCCLPP_UNAVAILABLE where observe.enabled is false. */
mscclpp_result_t mscclpp_trace_start(mscclpp_comm_t comm);
mscclpp_result_t mscclpp_trace_stop(mscclpp_comm_t comm);

/* mscclpp_trace_mark writes a text of the program into the records, while they are on: its first 31 bytes. A rank can have about a
 * hundred different ones. */
mscclpp_result_t mscclpp_trace_mark(mscclpp_comm_t comm, const char *text);

/* Collectives --------------------------------------------------------------------------------
 *
 * All ranks make the same calls in the same order with the same count, type, operation and root.
 * Buffers are memory of the communicator's device. On a GPU a call returns when its work is on the
 * stream; on the host when it is done. Calls on one communicator are carried out one at a time.
 * The stream of a communicator's last call must exist until another call, or until the communicator has ended.
 * Calls may be captured into a graph. The first one of a collective, and type, loads its kernels, unless it was prepared. */

typedef int32_t mscclpp_type_t;
enum {
  MSCCLPP_FLOAT32 = 0,
  MSCCLPP_FLOAT16 = 1,
  MSCCLPP_BFLOAT16 = 2,
  MSCCLPP_FLOAT64 = 3,
  MSCCLPP_INT8 = 4,
  MSCCLPP_UINT8 = 5,
  MSCCLPP_INT32 = 6,
  MSCCLPP_UINT32 = 7,
  MSCCLPP_INT64 = 8,
  MSCCLPP_UINT64 = 9,
  MSCCLPP_FLOAT8_E4M3 = 10,
  MSCCLPP_FLOAT8_E5M2 = 11,
  MSCCLPP_FLOAT8_E4M3B15 = 12
};

typedef int32_t mscclpp_op_t;
enum {
  MSCCLPP_SUM = 0,
  MSCCLPP_PROD = 1,
  MSCCLPP_MIN = 2,
  MSCCLPP_MAX = 3,
  MSCCLPP_AVG = 4,       /* sum divided by the number of ranks */
  MSCCLPP_PREMUL_SUM = 5 /* the sum of what each rank's input is when multiplied by that rank's own scale */
};

typedef struct {
  size_t size;
  void *stream;          /* of the device, as CUstream; NULL: its default stream. Of the host: NULL */
  const char *algorithm; /* NULL: the library chooses */
  double scale;          /* with MSCCLPP_PREMUL_SUM: this rank's input is multiplied by it; a number that the type holds */
  const void *scale_at;  /* not NULL: counts instead of scale; one element of the call's type, read before the call returns */
  int32_t scale_on_device; /* not 0: scale_at is memory that kernels can read; it is read in the order of the stream, when
                            * the call is carried out, and at each launch of a graph that has captured it. Of the host: the same as 0 */
} mscclpp_call_options_t;
#define MSCCLPP_CALL_OPTIONS_INIT {sizeof(mscclpp_call_options_t), NULL, NULL, 0, NULL, 0}

/* Errors of all collectives: MSCCLPP_INVALID for arguments that cannot be right, or that differ between
 * ranks; MSCCLPP_UNSUPPORTED for a type, operation or capture that no algorithm serves; otherwise why the
 * communicator has failed. options may be NULL. A count of 0 is a call like any other. */

/* mscclpp_all_reduce reduces count elements of all ranks, and gives the result to all. In place: send == recv. */
mscclpp_result_t mscclpp_all_reduce(mscclpp_comm_t comm, const void *send, void *recv, size_t count, mscclpp_type_t type,
                                    mscclpp_op_t op, const mscclpp_call_options_t *options);

/* mscclpp_reduce gives the result to root alone; recv is not used elsewhere. */
mscclpp_result_t mscclpp_reduce(mscclpp_comm_t comm, const void *send, void *recv, size_t count, mscclpp_type_t type,
                                mscclpp_op_t op, int32_t root, const mscclpp_call_options_t *options);

/* mscclpp_reduce_scatter reduces count elements for each rank, and gives each rank its own count
 * elements of the result. In place: recv is the rank's own part of send. */
mscclpp_result_t mscclpp_reduce_scatter(mscclpp_comm_t comm, const void *send, void *recv, size_t count,
                                        mscclpp_type_t type, mscclpp_op_t op, const mscclpp_call_options_t *options);

/* mscclpp_all_gather gathers count elements of each rank at all ranks, in the order of ranks. In place:
 * send is the rank's own part of recv. */
mscclpp_result_t mscclpp_all_gather(mscclpp_comm_t comm, const void *send, void *recv, size_t count,
                                    mscclpp_type_t type, const mscclpp_call_options_t *options);

/* mscclpp_broadcast copies count elements from root to all ranks; send is read on root alone. */
mscclpp_result_t mscclpp_broadcast(mscclpp_comm_t comm, const void *send, void *recv, size_t count, mscclpp_type_t type,
                                   int32_t root, const mscclpp_call_options_t *options);

/* mscclpp_gather collects count elements of each rank at root, in the order of ranks; recv is used on root alone. */
mscclpp_result_t mscclpp_gather(mscclpp_comm_t comm, const void *send, void *recv, size_t count, mscclpp_type_t type,
                                int32_t root, const mscclpp_call_options_t *options);

/* mscclpp_scatter sends count elements of root's send to each rank; send is used on root alone. */
mscclpp_result_t mscclpp_scatter(mscclpp_comm_t comm, const void *send, void *recv, size_t count, mscclpp_type_t type,
                                 int32_t root, const mscclpp_call_options_t *options);

/* mscclpp_all_to_all sends the count elements at r*count to each rank r, and receives as many from it. */
mscclpp_result_t mscclpp_all_to_all(mscclpp_comm_t comm, const void *send, void *recv, size_t count,
                                    mscclpp_type_t type, const mscclpp_call_options_t *options);

/* mscclpp_all_to_all_v sends send_counts[r] elements at send_offsets[r] to each rank r, and receives
 * recv_counts[r] at recv_offsets[r]. Offsets are in elements; each array has an entry for each rank, and is
 * read before the call returns. */
mscclpp_result_t mscclpp_all_to_all_v(mscclpp_comm_t comm, const void *send, const size_t *send_counts,
                                      const size_t *send_offsets, void *recv, const size_t *recv_counts,
                                      const size_t *recv_offsets, mscclpp_type_t type, const mscclpp_call_options_t *options);

/* mscclpp_send, mscclpp_recv: a message of count elements to or from a peer. Messages between two ranks
 * in one direction are matched in their order. */
mscclpp_result_t mscclpp_send(mscclpp_comm_t comm, const void *buffer, size_t count, mscclpp_type_t type, int32_t peer,
                              const mscclpp_call_options_t *options);
mscclpp_result_t mscclpp_recv(mscclpp_comm_t comm, void *buffer, size_t count, mscclpp_type_t type, int32_t peer,
                              const mscclpp_call_options_t *options);

/* mscclpp_barrier waits, on the device, until all ranks have called it. */
mscclpp_result_t mscclpp_barrier(mscclpp_comm_t comm, const mscclpp_call_options_t *options);

/* mscclpp_group_start begins a group: the messages (send, recv, gather, scatter, all_to_all_v) until the
 * matching mscclpp_group_end are performed together, in any order. Groups nest. A communicator has one
 * group at a time, whichever thread has started it. mscclpp_group_end without a start is MSCCLPP_INVALID. */
mscclpp_result_t mscclpp_group_start(mscclpp_comm_t comm);
mscclpp_result_t mscclpp_group_end(mscclpp_comm_t comm);

/* mscclpp_prepare loads the kernels that calls of a collective ("allreduce", "sendrecv", … as in the configuration) with elements
 * of a type may choose, so that the first call need not, and may be captured. Local. */
mscclpp_result_t mscclpp_prepare(mscclpp_comm_t comm, const char *collective, mscclpp_type_t type);

/* Memory and windows -------------------------------------------------------------------------
 *
 * Handles below belong to a communicator, and end with it. Addresses are those of the communicator's device:
 * the host may use them where the device is the host. */

typedef struct mscclpp_memory *mscclpp_memory_t;
typedef struct mscclpp_window *mscclpp_window_t;

/* mscclpp_memory_alloc returns zeroed memory that other ranks can be given access to. Local. Errors:
 * MSCCLPP_UNAVAILABLE if there is not enough. */
mscclpp_result_t mscclpp_memory_alloc(mscclpp_comm_t comm, size_t bytes, mscclpp_memory_t *memory);

/* mscclpp_memory_register makes memory that the program has usable where a mscclpp_memory_t is asked for. It
 * must lie within one allocation of the device's driver, or be any memory of the host; other processes cannot map the latter. The program
 * keeps it, and calls mscclpp_memory_free before it frees it. Local. */
mscclpp_result_t mscclpp_memory_register(mscclpp_comm_t comm, void *address, size_t bytes, mscclpp_memory_t *memory);

/* mscclpp_memory_range returns where the memory is; either place may be NULL. */
mscclpp_result_t mscclpp_memory_range(mscclpp_memory_t memory, void **address, size_t *bytes);

/* mscclpp_memory_write and mscclpp_memory_read copy count bytes from and to memory of the program, at an offset in the memory,
 * and return when that is done. They wait for nothing that is on streams. */
mscclpp_result_t mscclpp_memory_write(mscclpp_memory_t memory, size_t offset, const void *bytes, size_t count);
mscclpp_result_t mscclpp_memory_read(mscclpp_memory_t memory, size_t offset, void *bytes, size_t count);

/* mscclpp_memory_free closes the windows and channels that use the memory, and frees what was allocated. Peers
 * keep what they have mapped, and calls of the communicator that are queued on streams what they use; it does not wait for them. Calls
 * in graphs must have ended. A capture that is open on the device may be spoiled. NULL is allowed. */
mscclpp_result_t mscclpp_memory_free(mscclpp_memory_t memory);

/* mscclpp_memory_keep leaves memory that was allocated where it is, until mscclpp_memory_release, also when it is freed or its communicator
 * ends: for pointers that others have. On a GPU nothing may use it any more when a release ends it. NULL may be released. Local. */
typedef struct mscclpp_kept *mscclpp_kept_t;
mscclpp_result_t mscclpp_memory_keep(mscclpp_memory_t memory, mscclpp_kept_t *kept);
mscclpp_result_t mscclpp_memory_release(mscclpp_kept_t kept);

/* mscclpp_window_create makes the memory of all ranks addressable for all: every rank contributes one, and sizes
 * may differ. Buffers within it are then used by collectives in place. Collective. Errors:
 * MSCCLPP_UNSUPPORTED if not all ranks share memory. */
mscclpp_result_t mscclpp_window_create(mscclpp_comm_t comm, mscclpp_memory_t memory, mscclpp_window_t *window);

/* mscclpp_window_arrange is mscclpp_window_create with the memory of all ranks side by side, so that kernels find that of rank r at
 * base + r * stride (mscclpp_window_flat). A rank's own memory is there beside where it was, and mscclpp_window_peer returns the latter for it. This
 * works for GPUs that map each other's memory, and memory behind handles of the driver (mscclpp_memory_alloc, ncclMemAlloc, cuMemCreate
 * with handles that can be exported), which begins at the same offset in its allocation on all ranks, or at one that differs by units in which the driver maps.
 * If one rank cannot take part, all get MSCCLPP_UNSUPPORTED, and the communicator works on. A rank that has no such
 * memory passes NULL. Collectives use buffers in place up to the size of the smallest memory, unless flags have MSCCLPP_WINDOW_PRIVATE; flags
 * are the same on all ranks. Collective. */
#define MSCCLPP_WINDOW_PRIVATE 1u
mscclpp_result_t mscclpp_window_arrange(mscclpp_comm_t comm, mscclpp_memory_t memory, uint32_t flags, mscclpp_window_t *window);

/* mscclpp_window_flat returns where kernels of this rank find the memory of rank 0, and how many bytes that of each rank is
 * behind the one before: a multiple of 4 GiB. Either place may be NULL. Errors: MSCCLPP_INVALID for a window of mscclpp_window_create. */
mscclpp_result_t mscclpp_window_flat(mscclpp_window_t window, void **base, size_t *stride);

/* mscclpp_window_peer returns where kernels of this rank reach the memory of a rank, and its size; either place may be NULL. */
mscclpp_result_t mscclpp_window_peer(mscclpp_window_t window, int32_t rank, void **address, size_t *bytes);

/* mscclpp_window_channels makes a memory channel to every rank over the window, and writes their device
 * handles, in the order of ranks; that of this rank is 0. *size is the room at handles, and then the bytes that
 * they need: 64 for each rank. They live as long as the window. Collective, also where there is too little
 * room, which must therefore be the same on all ranks. */
mscclpp_result_t mscclpp_window_channels(mscclpp_window_t window, void *handles, size_t *size);

/* mscclpp_window_free makes the memory of the peers unreachable, for calls that are queued when these have ended; see
 * mscclpp_memory_free. NULL is allowed. */
mscclpp_result_t mscclpp_window_free(mscclpp_window_t window);

#ifdef __cplusplus
}
#endif

#include "mscclpp_channels.h" /* channels, kernels of the program, proxies */
#include "mscclpp_plans.h"    /* execution plans, plans as algorithms, selectors */

#endif /* MSCCLPP_H_ */
