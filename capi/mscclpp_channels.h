/* Channels, kernels of the program, and proxies. mscclpp.h includes this file, and has what holds for all of the interface. */
#ifndef MSCCLPP_CHANNELS_H_
#define MSCCLPP_CHANNELS_H_

#include "mscclpp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Channels ------------------------------------------------------------------------------------
 *
 * A channel of kind memory lets kernels store into a peer's memory; of kind port, a proxy moves data that kernels or the
 * host ask for; of kind switch, a store reaches all ranks. Kernels use device handles: the structures of
 * mscclpp/layout.h, such as mscclpp::PortChannelHandle. */

typedef struct mscclpp_channel *mscclpp_channel_t;

/* mscclpp_memory_channel makes a channel to one peer. Both ends call it, each with the memory that it opens to the other. */
mscclpp_result_t mscclpp_memory_channel(mscclpp_comm_t comm, int32_t peer, mscclpp_memory_t memory, mscclpp_channel_t *channel);

/* mscclpp_port_channel makes a channel to one peer. Both ends call it. source is memory of this rank that puts
 * read; target is memory of this rank, allocated by mscclpp_memory_alloc, that the peer's puts write. They may be the same. */
mscclpp_result_t mscclpp_port_channel(mscclpp_comm_t comm, int32_t peer, mscclpp_memory_t source, mscclpp_memory_t target,
                                      mscclpp_channel_t *channel);

/* mscclpp_switch_channel makes a window over the memory of all ranks. Collective. All parts have the same size;
 * the last 128 bytes of each belong to the channel, and must be 0. Errors: MSCCLPP_UNSUPPORTED if no transport has one. */
mscclpp_result_t mscclpp_switch_channel(mscclpp_comm_t comm, mscclpp_memory_t memory, mscclpp_channel_t *channel);

/* mscclpp_channel_handle writes the device handle. *size is the room at handle, and then the bytes that it needs. */
mscclpp_result_t mscclpp_channel_handle(mscclpp_channel_t channel, void *handle, size_t *size);

/* mscclpp_channel_free ends the use of the channel by this rank. NULL is allowed. */
mscclpp_result_t mscclpp_channel_free(mscclpp_channel_t channel);

/* What the host does with a port channel. A put copies bytes from an offset of source to an offset of
 * the peer's target; it returns when the request is queued, and waits while the queue is full. A signal is seen after all
 * earlier puts. mscclpp_port_flush waits until the sources of all earlier puts may be reused, and mscclpp_port_wait
 * for the next signal of the peer, which it consumes; each for timeout ns at most, 0: without a limit. They end
 * when the communicator fails. */
mscclpp_result_t mscclpp_port_put(mscclpp_channel_t channel, size_t target_offset, size_t source_offset, size_t bytes);
mscclpp_result_t mscclpp_port_put_signal(mscclpp_channel_t channel, size_t target_offset, size_t source_offset, size_t bytes);
mscclpp_result_t mscclpp_port_signal(mscclpp_channel_t channel);
mscclpp_result_t mscclpp_port_flush(mscclpp_channel_t channel, uint64_t timeout);
mscclpp_result_t mscclpp_port_wait(mscclpp_channel_t channel, uint64_t timeout);

/* mscclpp_comm_control returns the address, for kernels, of the mscclpp::WaitControl that every wait of a
 * kernel takes, so that it ends when the communicator fails. */
mscclpp_result_t mscclpp_comm_control(mscclpp_comm_t comm, void **control);

/* Kernels of the program ----------------------------------------------------------------------
 *
 * A module is an image with kernels that the program brings: PTX or machine code for a GPU of NVIDIA, and a shared object for
 * the host, built with the headers in mscclpp/ (see docs/c-api.md). A kernel takes one argument, a plain structure, in which device
 * handles of channels are. */

typedef struct mscclpp_module *mscclpp_module_t;
typedef struct mscclpp_kernel *mscclpp_kernel_t;

/* mscclpp_module_load loads an image into the communicator's device. The image is not used after the call. Errors: MSCCLPP_INVALID for one that
 * is damaged, for another device, or built with other headers; the text has what the device's loader says. Local. */
mscclpp_result_t mscclpp_module_load(mscclpp_comm_t comm, const void *image, size_t bytes, mscclpp_module_t *module);

/* mscclpp_module_kernel finds a kernel by its symbol. Errors: MSCCLPP_INVALID if there is none. */
mscclpp_result_t mscclpp_module_kernel(mscclpp_module_t module, const char *symbol, mscclpp_kernel_t *kernel);

typedef struct {
  size_t size;
  void *stream;                 /* as in mscclpp_call_options_t */
  uint32_t grid, block, shared; /* blocks, threads of each, and bytes of dynamic shared memory */
  uint32_t reserved;            /* 0 */
} mscclpp_launch_options_t;
#define MSCCLPP_LAUNCH_OPTIONS_INIT {sizeof(mscclpp_launch_options_t), NULL, 1, 1, 0, 0}

/* mscclpp_kernel_launch launches a kernel with an argument of so many bytes, at most 4096, which is copied. On a GPU it
 * returns when the work is on the stream, and may be captured into a graph; on the host the calling thread runs the kernel. A wait of a
 * kernel ends when the communicator fails, as that of a channel's handle does. options may be NULL. Errors: MSCCLPP_INVALID for
 * sizes that cannot be right, or that the device refuses; why the communicator has failed. */
mscclpp_result_t mscclpp_kernel_launch(mscclpp_kernel_t kernel, const mscclpp_launch_options_t *options, const void *args, size_t bytes);

/* mscclpp_module_free unloads an image, and ends the handles of its kernels, which must not run any more. NULL is allowed. */
mscclpp_result_t mscclpp_module_free(mscclpp_module_t module);

/* Proxies -------------------------------------------------------------------------------------
 *
 * A proxy calls a function of the program for every trigger that kernels or the host push into its ring, on a
 * thread of its own. A trigger has 127 bits, whose meaning is the program's. For communicators on the host; others: MSCCLPP_UNSUPPORTED. */

typedef struct mscclpp_proxy *mscclpp_proxy_t;

/* A function for triggers gets each with its position in the ring, one at a time, in the order of the pushes. It returns
 * 0 to go on, 1 to end in good order, and anything else for a failure, with which later pushes fail. Of this
 * library it may call mscclpp_proxy_complete alone. */
typedef int (*mscclpp_proxy_fn)(void *context, uint64_t first, uint64_t second, uint64_t position);

/* mscclpp_proxy_create makes a proxy with a ring of so many triggers, a power of two. Local. */
mscclpp_result_t mscclpp_proxy_create(mscclpp_comm_t comm, uint32_t slots, mscclpp_proxy_fn handler, void *context,
                                      mscclpp_proxy_t *proxy);

/* mscclpp_proxy_handle writes the mscclpp::FifoHandle by which kernels push. *size is the room at handle, and then the bytes that it needs. */
mscclpp_result_t mscclpp_proxy_handle(mscclpp_proxy_t proxy, void *handle, size_t *size);

/* mscclpp_proxy_push pushes a trigger, and waits while the ring is full. The highest bit of second must be 0. position may be NULL. */
mscclpp_result_t mscclpp_proxy_push(mscclpp_proxy_t proxy, uint64_t first, uint64_t second, uint64_t *position);

/* mscclpp_proxy_complete says that everything up to a position is done, which ends the flushes that wait for it. */
mscclpp_result_t mscclpp_proxy_complete(mscclpp_proxy_t proxy, uint64_t position);

/* mscclpp_proxy_flush waits until mscclpp_proxy_complete was called for a position, at most timeout ns; 0: without a limit. */
mscclpp_result_t mscclpp_proxy_flush(mscclpp_proxy_t proxy, uint64_t position, uint64_t timeout);

/* mscclpp_proxy_free performs the triggers that were pushed, and ends the thread. NULL is allowed. No other
 * thread may be in a call on the proxy, nor kernels push, then or while the communicator is destroyed. Errors: that of the handler. */
mscclpp_result_t mscclpp_proxy_free(mscclpp_proxy_t proxy);

#ifdef __cplusplus
}
#endif
#endif /* MSCCLPP_CHANNELS_H_ */
