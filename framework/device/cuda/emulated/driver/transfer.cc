// Copies, fills, and words that streams write and wait for.
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "fault.h"
#include "state.h"

namespace {

enum Place { kDevice, kPinned, kPageable, kNowhere };

Place place_of(uint64_t address, uint64_t bytes, int device) {
  const Range* r = range_of(address);
  if (r != nullptr || in_arena(address)) {
    if (!usable(address, bytes, device)) return kNowhere;
    return r->host() ? kPinned : kDevice;
  }
  const uint64_t first = address / kPage * kPage, last = (address + bytes + kPage - 1) / kPage * kPage;
  std::vector<unsigned char> pages((last - first) / kPage);
  return mincore(reinterpret_cast<void*>(first), last - first, pages.data()) == 0 ? kPageable : kNowhere;
}

int copy(Lock& lock, uint64_t to, uint64_t from, size_t bytes, Stream* stream) {
  if (bytes == 0) return kSuccess;
  Context* context = stream->context;
  const int device = context->device;
  const Place dst = place_of(to, bytes, device), src = place_of(from, bytes, device);
  if (dst == kNowhere || src == kNowhere) return kInvalidValue;
  void* out = reinterpret_cast<void*>(to);
  const void* in = reinterpret_cast<const void*>(from);
  if (src == kPageable) {
    // The caller may change it once the call has returned.
    auto taken = std::make_shared<std::vector<char>>(static_cast<const char*>(in), static_cast<const char*>(in) + bytes);
    return enqueue(stream, [context, out, taken] {
      guarded(context, "a copy", [to = out, from = taken->data(), n = taken->size()] { memcpy(to, from, n); });
    });
  }
  if (dst == kPageable && stream->capture != nullptr) {
    invalidate(stream);
    return kCaptureUnsupported;
  }
  const int bad = enqueue(stream, [context, out, in, bytes] {
    guarded(context, "a copy", [=] { memmove(out, in, bytes); });
  });
  if (bad != kSuccess) return bad;
  if (dst == kPageable) {
    const Mark mark = stream->mark();
    lock.unlock();
    mark.wait();
    return context->fault;
  }
  return kSuccess;
}

bool holds(uint64_t seen, uint64_t value, unsigned how) {
  switch (how) {
    case 0: return static_cast<int64_t>(seen - value) >= 0;
    case 1: return seen == value;
    case 2: return (seen & value) != 0;
  }
  return ~(seen | value) != 0;
}

// As long as it takes, as the hardware does; gently, since cores are few.
void wait_word(const Context* context, const uint64_t* word, uint64_t value, unsigned how) {
  for (unsigned i = 0; context->fault == 0 && !holds(__atomic_load_n(word, __ATOMIC_ACQUIRE), value, how); ++i) {
    if (i < 1000) {
      sched_yield();
    } else {
      struct timespec t = {0, 50000};
      nanosleep(&t, nullptr);
    }
  }
}

// Finds the stream of a call on a word, and checks the word.
int find_word(uint64_t address, Stream* handle, Context* current, Stream** stream) {
  if (int bad = find_stream(handle, current, stream)) return bad;
  if (!has("memops")) return kNotSupported;
  if (address % 8 != 0 || range_of(address) == nullptr || !usable(address, 8, (*stream)->context->device)) return kInvalidValue;
  return kSuccess;
}

}  // namespace

API int cuMemcpyAsync(DevicePtr to, DevicePtr from, size_t bytes, Stream* handle) {
  ENTER_CONTEXT(current);
  Stream* stream;
  if (int bad = find_stream(handle, current, &stream)) return bad;
  return copy(lock, to, from, bytes, stream);
}

API int cuMemcpyHtoDAsync_v2(DevicePtr to, const void* from, size_t bytes, Stream* handle) {
  ENTER_CONTEXT(current);
  Stream* stream;
  if (int bad = find_stream(handle, current, &stream)) return bad;
  if (bytes > 0 && place_of(to, bytes, stream->context->device) > kPinned) return kInvalidValue;
  return copy(lock, to, reinterpret_cast<uint64_t>(from), bytes, stream);
}

API int cuMemcpyDtoHAsync_v2(void* to, DevicePtr from, size_t bytes, Stream* handle) {
  ENTER_CONTEXT(current);
  Stream* stream;
  if (int bad = find_stream(handle, current, &stream)) return bad;
  if (bytes > 0 && place_of(from, bytes, stream->context->device) > kPinned) return kInvalidValue;
  return copy(lock, reinterpret_cast<uint64_t>(to), from, bytes, stream);
}

API int cuMemsetD8Async(DevicePtr to, unsigned char value, size_t count, Stream* handle) {
  ENTER_CONTEXT(current);
  Stream* stream;
  if (int bad = find_stream(handle, current, &stream)) return bad;
  if (count == 0) return kSuccess;
  if (place_of(to, count, stream->context->device) > kPinned) return kInvalidValue;
  return enqueue(stream, [context = stream->context, to, value, count] {
    guarded(context, "a fill", [=] { memset(reinterpret_cast<void*>(to), value, count); });
  });
}

API int cuStreamWriteValue64_v2(Stream* handle, DevicePtr address, uint64_t value, unsigned flags) {
  ENTER_CONTEXT(current);
  Stream* stream;
  if (int bad = find_word(address, handle, current, &stream)) return bad;
  if (flags > 1) return kInvalidValue;
  return enqueue(stream, [context = stream->context, address, value] {
    guarded(context, "the store of a word", [=] { __atomic_store_n(reinterpret_cast<uint64_t*>(address), value, __ATOMIC_SEQ_CST); });
  });
}

API int cuStreamWaitValue64_v2(Stream* handle, DevicePtr address, uint64_t value, unsigned flags) {
  ENTER_CONTEXT(current);
  Stream* stream;
  if (int bad = find_word(address, handle, current, &stream)) return bad;
  if ((flags & ~(1u << 30)) > 3) return kInvalidValue;
  return enqueue(stream, [context = stream->context, address, value, flags] {
    guarded(context, "the wait for a word", [=] { wait_word(context, reinterpret_cast<uint64_t*>(address), value, flags & 3); });
  });
}
