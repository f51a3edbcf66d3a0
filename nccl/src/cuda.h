/* The few functions of the CUDA driver that this library calls itself. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "../nccl.h"

/* cuda_current returns the ordinal of the device that is current on this thread: 0 if none is yet,
 * -1 where there is no driver or no device. */
int cuda_current(void);

/* cuda_count returns the number of devices. */
int cuda_count(void);

/* cuda_bus is the place of a device on the bus, as NCCL writes it: the hexadecimal digits of 0000:4f:00.0 as a number; 0 where there
 * is none. cuda_nvml is the device's number among those of the machine, by CUDA_VISIBLE_DEVICES where that has numbers. */
uint64_t cuda_bus(int device);
int cuda_nvml(int device);

/* cuda_settle waits until a device has done all that was put on its streams. */
ncclResult_t cuda_settle(int device);

/* cuda_alloc returns memory of a device that other processes and adapters can be given, rounded up to the
 * device's granularity, and accessible to all devices of this process that can reach it.
 * cuda_free takes any memory that the driver has allocated. */
ncclResult_t cuda_alloc(int device, size_t bytes, void** out);
ncclResult_t cuda_free(void* at);

/* cuda_size returns the size of memory that cuda_alloc has mapped at p, 0 for any other. */
size_t cuda_size(const void* p);

/* cuda_quiet waits for the work of the device whose memory cuda_alloc has mapped at p. The driver waits before it frees
 * memory of cudaMalloc, but not before it takes away a mapping. On a thread that has called cuda_relax it spoils no capture, unless the device
 * has no byte of memory left. */
ncclResult_t cuda_quiet(const void* p);

/* cuda_check_pointer refuses what is no memory of a device; name says which argument it is. */
ncclResult_t cuda_check_pointer(int device, const void* p, const char* function, const char* name);

/* cuda_enter makes the primary context of a device current until cuda_leave. Device -1 has none. */
ncclResult_t cuda_enter(int device);
void cuda_leave(int device);

/* Events order streams. cuda_event_record sets *recorded, unless the stream is being captured: that, and
 * cuda_event_wait on such a stream, do nothing. */
ncclResult_t cuda_event_new(void** event, int device);
void cuda_event_free(void* event, int device);
ncclResult_t cuda_event_record(void* event, int device, cudaStream_t stream, int* recorded);
ncclResult_t cuda_event_wait(void* event, int device, cudaStream_t stream);

/* cuda_capturing reports whether a stream is being captured. */
int cuda_capturing(int device, cudaStream_t stream);

/* cuda_wait has a stream wait for all that is on another one. */
ncclResult_t cuda_wait(int device, cudaStream_t stream, cudaStream_t for_stream);

/* A timer of what is put on a stream between its start and its stop. Start returns NULL, and stop 0, where the stream is being
 * captured, or nothing can be timed: no text is kept for that. cuda_timer_done returns 1 when the work is done, -1 when
 * nothing will tell; its wait spoils no capture on a thread that has called cuda_relax. */
struct cuda_timer;
struct cuda_timer* cuda_timer_start(int device, cudaStream_t stream);
int cuda_timer_stop(struct cuda_timer* t);
int cuda_timer_done(struct cuda_timer* t, double* seconds);
void cuda_timer_free(struct cuda_timer* t);

/* cuda_relax has calls of this thread be none of a capture, and returns what to give to cuda_restore. */
int cuda_relax(void);
void cuda_restore(int mode);

/* What timers are made of: cuda_mark records a new event, and returns 1, or makes none; cuda_marks_apart returns as cuda_timer_done does. */
int cuda_mark(int device, cudaStream_t stream, void** event);
int cuda_marks_apart(int device, void* from, void* to, float* milliseconds);
