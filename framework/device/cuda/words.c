// The words for codes: the driver's, and those of CUDA_WORDS_….
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "gdrcopy.h"

enum { INVALID = MSCCLPP_DEVICE_CLASS_INVALID, UNSUPPORTED = MSCCLPP_DEVICE_CLASS_UNSUPPORTED, UNAVAILABLE = MSCCLPP_DEVICE_CLASS_UNAVAILABLE };

// Sentences that stand for an answer of the driver, or beside one. class 0: that of the answer.
static const struct {
  int class;
  const char* text;
} words[] = {
    [CUDA_WORDS_WHOLE] = {0, "an allocation is mapped whole: expected a range that ends with it"},
    [CUDA_WORDS_ACCESS] = {0, "expected a GPU that may address the memory of the other one, or memory of the host that both register"},
    [CUDA_WORDS_IMAGE] = {0, "expected PTX, or a binary for this GPU"},
    [CUDA_WORDS_NO_DRIVER] = {UNAVAILABLE, "no NVIDIA driver"},
    [CUDA_WORDS_OPTION] = {INVALID, "option: expected library=PATH, memory=legacy, memory=fabric or gdrcopy=off"},
    [CUDA_WORDS_OLD] = {UNAVAILABLE, "it has no 64-bit stream memory operations: expected Volta or later"},
    [CUDA_WORDS_NO_REGISTER] = {UNSUPPORTED, "the GPU cannot register host memory"},
    [CUDA_WORDS_NO_FLUSH] = {UNSUPPORTED, "expected a GPU that keeps such writes in order, or a driver that flushes them"},
    [CUDA_WORDS_NO_MARK] = {UNSUPPORTED, "an event behind all streams: expected a driver for CUDA 12.5 or later, and no stream that is captured"},
    [CUDA_WORDS_NO_SHARE] = {UNSUPPORTED, "it has no share of this kind"},
    [CUDA_WORDS_PAGES] = {INVALID, "a part of memory that does not consist of whole pages"},
    [CUDA_WORDS_FABRIC] = {INVALID, "expected a handle of 64 bytes"},
    [CUDA_WORDS_LEGACY] = {INVALID, "share: expected 97 bytes, version 1, and a place below 64 TiB"},
    [CUDA_WORDS_OWN] = {UNSUPPORTED, "the driver opens it in other processes only"},
    [CUDA_WORDS_RANGE] = {INVALID, "the range exceeds the memory"},
    [CUDA_WORDS_SWITCH] = {0, "a step of multicast"},
    [CUDA_WORDS_NVLS_OFF] = {UNSUPPORTED, "multicast is switched off by NCCL_NVLS_ENABLE=0, or MSCCLPP_NVLS=0"},
    [CUDA_WORDS_NO_MULTICAST] = {UNSUPPORTED, "the GPU has no multicast: expected compute capability 9.0 or later behind an NVSwitch, and a driver for CUDA 12.1 or later"},
    [CUDA_WORDS_MULTICAST_MEMORY] = {UNSUPPORTED, "expected whole units of memory from Alloc, behind a handle with a descriptor: the driver's older memory and that of the host cannot be bound"},
    [CUDA_WORDS_GDRCOPY] = {UNAVAILABLE, NULL},
    [CUDA_WORDS_NO_GDRCOPY] = {UNAVAILABLE, "no GDRCopy"},
    [CUDA_WORDS_GDRCOPY_OFF] = {UNSUPPORTED, "GDRCopy is switched off"},
};

static int is_lost(int code) {
  switch (code) {
    case CUDA_ERROR_ECC_UNCORRECTABLE: case CUDA_ERROR_NVLINK_UNCORRECTABLE: case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS: case CUDA_ERROR_LAUNCH_TIMEOUT: case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR: case CUDA_ERROR_ILLEGAL_INSTRUCTION: case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE: case CUDA_ERROR_INVALID_PC: case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_UNKNOWN:
      return 1;
  }
  return 0;
}

static int class_of(int code) {
  switch (code) {
    case CUDA_ERROR_DEINITIALIZED: case CUDA_ERROR_CONTEXT_IS_DESTROYED:
      return MSCCLPP_DEVICE_CLASS_CLOSED;
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED: case CUDA_ERROR_NOT_SUPPORTED:
      return UNSUPPORTED;
    case CUDA_ERROR_OUT_OF_MEMORY: case CUDA_ERROR_NOT_INITIALIZED: case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_DEVICE_UNAVAILABLE: case CUDA_ERROR_NO_DEVICE: case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION: case CUDA_ERROR_JIT_COMPILATION_DISABLED:
    case CUDA_ERROR_OPERATING_SYSTEM: case CUDA_ERROR_NOT_READY: case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_SYSTEM_NOT_READY: case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_MPS_CONNECTION_FAILED: case CUDA_ERROR_MPS_RPC_FAILURE: case CUDA_ERROR_MPS_SERVER_NOT_READY:
    case CUDA_ERROR_MPS_MAX_CLIENTS_REACHED: case CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED:
      return UNAVAILABLE;
  }
  return is_lost(code) ? UNAVAILABLE : INVALID;  // the driver was asked for what makes no sense to it
}

// The meaning of answers to steps of multicast (others have met them; the documentation says little), and what to do.
static const struct {
  int answer, class;
  const char* text;
} of_the_switch[] = {
    {CUDA_ERROR_INVALID_VALUE, UNAVAILABLE, "the fabric manager was started or stopped without a reset of the GPUs, or sizes are no whole units: reset them, or restart the host"},
    {CUDA_ERROR_OUT_OF_MEMORY, MSCCLPP_DEVICE_CLASS_FULL, "the switch has no room for another window: those of other jobs, and what they left, count as well"},
    {CUDA_ERROR_MULTICAST_RESOURCE_FULL, MSCCLPP_DEVICE_CLASS_FULL, "the switch has no room for another window: those of other jobs, and what they left, count as well"},
    {CUDA_ERROR_INVALID_DEVICE, UNAVAILABLE, "the GPUs are in different partitions of the switch: expected all in one clique"},
    {CUDA_ERROR_ILLEGAL_STATE, UNAVAILABLE, "the fabric manager does not run, or is in a bad state: look at nvidia-fabricmanager"},
    {CUDA_ERROR_NOT_PERMITTED, UNAVAILABLE, "the container has no device of capabilities, or there is no IMEX channel"},
    {CUDA_ERROR_NOT_SUPPORTED, UNSUPPORTED, "there is no switch, or a part of a GPU, a virtual one, confidential computing or an old driver keeps it away"},
    {CUDA_ERROR_SYSTEM_NOT_READY, MSCCLPP_DEVICE_CLASS_LATER, "the fabric manager is slow or still starting"},
};

static void append(char* text, size_t bytes, const char* more) {
  const size_t n = strlen(text);
  snprintf(text + n, bytes - n, "%s%s", n > 0 && more[0] != '\0' ? "; " : "", more);
}

void cuda_describe(int32_t code, mscclpp_device_error* e) {
  const int what = code / CUDA_HINT, answer = code % CUDA_HINT;
  e->name[0] = e->text[0] = '\0';
  if (what == CUDA_WORDS_GDRCOPY) {
    char text[sizeof e->name];
    e->error_class = UNAVAILABLE;
    snprintf(e->name, sizeof e->name, "%s", strerror_r(answer, text, sizeof text));
    return;
  }
  if (answer != 0) {
    cuda_driver_words(answer, e);
    e->error_class = class_of(answer), e->lost = is_lost(answer);
  }
  for (size_t i = 0; what == CUDA_WORDS_SWITCH && i < sizeof of_the_switch / sizeof *of_the_switch; i++) {
    if (of_the_switch[i].answer != answer) continue;
    e->error_class = of_the_switch[i].class;
    append(e->text, sizeof e->text, of_the_switch[i].text);
    return;
  }
  if (what <= 0 || what >= (int)(sizeof words / sizeof *words)) return;
  if (words[what].class != 0) e->error_class = words[what].class;
  append(e->text, sizeof e->text, words[what].text);
  char why[512] = "";
  if (what == CUDA_WORDS_NO_DRIVER) cuda_reason(why, sizeof why);
  if (what == CUDA_WORDS_NO_GDRCOPY) gdrcopy_reason(why, sizeof why);
  const size_t n = strlen(e->text);
  if (why[0] != '\0') snprintf(e->text + n, sizeof e->text - n, ": %s", why);
}
