// The words for codes: the library's, and those of HIP_SAYS_….
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "shim.h"

enum { INVALID = MSCCLPP_DEVICE_CLASS_INVALID, UNSUPPORTED = MSCCLPP_DEVICE_CLASS_UNSUPPORTED, UNAVAILABLE = MSCCLPP_DEVICE_CLASS_UNAVAILABLE };

// Words for an answer of the library, or beside one. class 0: that of the answer.
static const struct {
  int class;
  const char* text;
} words[] = {
    [HIP_SAYS_NO_DRIVER] = {UNAVAILABLE, "no HIP runtime of AMD"},
    [HIP_SAYS_OPTION] = {INVALID, "option: expected library=PATH or memory=vmm"},
    [HIP_SAYS_IMAGE] = {INVALID, "expected a code object for this GPU"},
    [HIP_SAYS_ACCESS] = {UNSUPPORTED, "expected GPUs that may address each other's memory, or memory of the host that both register"},
    [HIP_SAYS_UNCACHED] = {UNSUPPORTED, "expected a runtime that makes uncached memory: kernels that poll would not see what peers write into other memory"},
    [HIP_SAYS_NO_SHARE] = {UNSUPPORTED, "it has no share of this kind"},
    [HIP_SAYS_LEGACY] = {INVALID, "share: expected 97 bytes, version 1, and a place below 64 TiB"},
    [HIP_SAYS_OWN] = {UNSUPPORTED, "the runtime opens it in other processes only"},
    [HIP_SAYS_RANGE] = {INVALID, "the range exceeds the memory"},
    [HIP_SAYS_WHOLE] = {0, "an allocation is mapped whole: expected a range that ends with it"},
    [HIP_SAYS_NO_DMA_BUF] = {UNSUPPORTED, "a dma-buf: expected Linux 5.12 and ROCm 5.6, or later"},
    [HIP_SAYS_PAGES] = {INVALID, "a part of memory that does not consist of whole pages"},
    [HIP_SAYS_NO_FLUSH] = {UNSUPPORTED, "the GPU has no register that flushes writes of adapters"},
    [HIP_SAYS_NO_WORDS] = {UNSUPPORTED, "there is no image for this GPU of the kernels that store words and wait for them: expected gfx90a or gfx942"},
    [HIP_SAYS_NO_GRAPH_TIMES] = {UNSUPPORTED, "the runtime has no function hipEventRecordWithFlags: graphs take times from HIP 6.4 on"},
    [HIP_SAYS_SHARED] = {INVALID, "more memory of a block than a compute unit has"},
};

static int is_lost(int code) {
  switch (code) {
    case hipErrorECCNotCorrectable: case hipErrorIllegalAddress: case hipErrorLaunchTimeOut: case hipErrorAssert:
    case hipErrorLaunchFailure: case hipErrorUnknown:
      return 1;
  }
  return code > 713 && code < 719;  // of hardware
}

static int class_of(int code) {
  switch (code) {
    case hipErrorDeinitialized: case hipErrorContextIsDestroyed:
      return MSCCLPP_DEVICE_CLASS_CLOSED;
    case hipErrorPeerAccessUnsupported: case hipErrorNotSupported:
      return UNSUPPORTED;
    case hipErrorOutOfMemory: case hipErrorNotInitialized: case hipErrorInsufficientDriver: case hipErrorNoDevice:
    case hipErrorOperatingSystem: case hipErrorNotReady: case hipErrorRuntimeMemory: case hipErrorRuntimeOther:
      return UNAVAILABLE;
  }
  return is_lost(code) ? UNAVAILABLE : INVALID;  // the library was asked for what makes no sense to it
}

void hip_describe(int32_t code, mscclpp_device_error* e) {
  const int what = code / HIP_HINT, answer = code % HIP_HINT;
  e->name[0] = e->text[0] = '\0';
  if (answer != 0) {
    hip_library_words(answer, e);
    e->error_class = class_of(answer), e->lost = is_lost(answer);
  }
  if (what <= 0 || what >= (int)(sizeof words / sizeof *words)) return;
  if (words[what].class != 0) e->error_class = words[what].class;
  size_t n = strlen(e->text);
  n += (size_t)snprintf(e->text + n, sizeof e->text - n, "%s%s", n > 0 ? "; " : "", words[what].text);
  char why[512] = "";
  if (what == HIP_SAYS_NO_DRIVER) hip_reason(why, sizeof why);
  if (why[0] != '\0' && n < sizeof e->text) snprintf(e->text + n, sizeof e->text - n, ": %s", why);
}
