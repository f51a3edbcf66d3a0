// Streams: queues with the rules of the default stream, and captures.
#include <algorithm>

#include "state.h"

namespace {

// Marks of what an operation on the stream has to come after beside its queue: the
// default stream and the blocking streams of a context wait for each other.
std::vector<Mark> implicit(Stream* stream) {
  std::vector<Mark> out;
  Context* c = stream->context;
  if ((stream->flags & kStreamNonBlocking) != 0) return out;
  auto add = [&](Stream* other) {
    if (Mark m = other->mark(); !m.reached()) out.push_back(m);
  };
  if (stream != c->legacy.get()) {
    add(c->legacy.get());
    return out;
  }
  for (Stream* s : c->streams) {
    if ((s->flags & kStreamNonBlocking) == 0) add(s);
  }
  return out;
}

constexpr uintptr_t kOfThread = 2;  // the handle of the default stream of the thread that calls

}  // namespace

Stream* make_stream(Context* context, unsigned flags, int priority) {
  Stream* s = new Stream;
  s->context = context;
  s->flags = flags;
  static uint64_t ids = 2;
  s->id = ++ids;
  s->priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
  context->streams.insert(s);
  return s;
}

int find_stream(Stream* handle, Context* current, Stream** stream) {
  if (handle == nullptr || reinterpret_cast<uintptr_t>(handle) == 1) {
    *stream = current->legacy.get();
    return kSuccess;
  }
  if (reinterpret_cast<uintptr_t>(handle) == kOfThread) {
    Stream*& own = current->of_threads[thread_number()];
    if (own == nullptr) own = make_stream(current, 0, 0);
    *stream = own;
    return kSuccess;
  }
  for (auto& d : state().devices) {
    if (d->context.streams.count(handle) == 1) {
      *stream = handle;
      return kSuccess;
    }
  }
  return kInvalidHandle;
}

int enqueue(Stream* stream, Op op) {
  if (stream->capture != nullptr) return record(stream, std::move(op));
  if (stream == stream->context->legacy.get()) {
    // It would wait for a stream whose work is only recorded.
    bool captures = false;
    for (Stream* s : stream->context->streams) {
      if (s->capture == nullptr || (s->flags & kStreamNonBlocking) != 0) continue;
      invalidate(s);
      captures = true;
    }
    if (captures) return kCaptureImplicit;
  }
  std::vector<Mark> first = implicit(stream);
  if (!first.empty()) {
    op = [first, op] {
      for (const Mark& m : first) m.wait();
      op();
    };
  }
  stream->queue->push(std::move(op));
  return kSuccess;
}

API int cuStreamCreateWithPriority(Stream** stream, unsigned flags, int priority) {
  ENTER_CONTEXT(current);
  if (stream == nullptr || flags > kStreamNonBlocking) return kInvalidValue;
  *stream = make_stream(current, flags, priority);
  return kSuccess;
}

API int cuStreamGetId(Stream* handle, unsigned long long* id) {
  ENTER_CONTEXT(current);
  Stream* stream;
  if (int bad = find_stream(handle, current, &stream)) return bad;
  if (id == nullptr) return kInvalidValue;
  if (stream->capture != nullptr) {
    invalidate(stream);
    return kCaptureUnsupported;
  }
  *id = stream->id;
  return kSuccess;
}

// Returns at once; what was enqueued is still done.
API int cuStreamDestroy_v2(Stream* handle) {
  ENTER_CONTEXT(current);
  Stream* stream;
  if (int bad = find_stream(handle, current, &stream)) return bad;
  if (stream == current->legacy.get() || reinterpret_cast<uintptr_t>(handle) == kOfThread) return kInvalidHandle;
  leave_capture(stream);
  std::vector<Mark>& left = stream->context->left;
  left.erase(std::remove_if(left.begin(), left.end(), [](const Mark& m) { return m.reached(); }), left.end());
  if (!stream->mark().reached()) left.push_back(stream->mark());
  stream->queue->close();
  stream->context->streams.erase(stream);
  delete stream;
  return kSuccess;
}

API int cuStreamQuery(Stream* handle) {
  ENTER_CONTEXT(current);
  Stream* stream;
  if (int bad = find_stream(handle, current, &stream)) return bad;
  if (stream->capture != nullptr) {
    invalidate(stream);
    return kCaptureUnsupported;
  }
  if (int bad = check_captures()) return bad;
  if (!stream->mark().reached()) return kNotReady;
  for (const Mark& m : implicit(stream)) {
    if (stream == current->legacy.get() && !m.reached()) return kNotReady;
  }
  return kSuccess;
}

API int cuStreamSynchronize(Stream* handle) {
  ENTER_CONTEXT(current);
  Stream* stream;
  if (int bad = find_stream(handle, current, &stream)) return bad;
  if (stream->capture != nullptr) {
    invalidate(stream);
    return kCaptureUnsupported;
  }
  if (int bad = check_captures()) return bad;
  Context* stream_context = stream->context;
  std::vector<Mark> all = {stream->mark()};
  if (stream == current->legacy.get()) {
    for (const Mark& m : implicit(stream)) all.push_back(m);
  }
  lock.unlock();
  for (const Mark& m : all) m.wait();
  return stream_context->fault;
}

// Spoils what streams of the context capture, in whichever mode, on whichever thread.
API int cuCtxSynchronize() {
  ENTER_CONTEXT(current);
  if (spoil_captures(current)) return kCaptureUnsupported;
  std::vector<Mark> all = current->left;
  all.push_back(current->legacy->mark());
  for (const Stream* s : current->streams) all.push_back(const_cast<Stream*>(s)->mark());
  lock.unlock();
  for (const Mark& m : all) m.wait();
  return current->fault;
}

// Copies that the program waits for are those of the default stream.
API int cuMemcpyHtoDAsync_v2(DevicePtr to, const void* from, size_t bytes, Stream* handle);
API int cuMemcpyDtoHAsync_v2(void* to, DevicePtr from, size_t bytes, Stream* handle);

API int cuMemcpyHtoD_v2(DevicePtr to, const void* from, size_t bytes) {
  const int bad = cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr);
  return bad != kSuccess ? bad : cuStreamSynchronize(nullptr);
}

API int cuMemcpyDtoH_v2(void* to, DevicePtr from, size_t bytes) {
  const int bad = cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr);
  return bad != kSuccess ? bad : cuStreamSynchronize(nullptr);
}
