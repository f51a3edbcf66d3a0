// Events.
#include <time.h>

#include "state.h"

namespace {

uint64_t now() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

int find_event(Event* event) {
  for (auto& d : state().devices) {
    if (d->context.events.count(event) == 1) return kSuccess;
  }
  return kInvalidHandle;
}

// Of calls that ask how far an event is. In a capture it is nowhere.
int check_event(Event* event) {
  if (int bad = find_event(event)) return bad;
  if (event->capture == nullptr) return check_captures();
  if (!event->capture->members.empty()) invalidate(*event->capture->members.begin());
  return kCapturedEvent;
}

}  // namespace

API int cuEventCreate(Event** event, unsigned flags) {
  ENTER_CONTEXT(current);
  if (event == nullptr || flags > 3) return kInvalidValue;  // between processes: not supported
  Event* e = new Event;
  e->context = current;
  e->flags = flags;
  current->events.insert(e);
  *event = e;
  return kSuccess;
}

API int cuEventDestroy_v2(Event* event) {
  ENTER_CONTEXT(current);
  if (int bad = find_event(event)) return bad;
  event->context->events.erase(event);
  delete event;
  return kSuccess;
}

API int cuEventRecord(Event* event, Stream* handle) {
  ENTER_CONTEXT(current);
  if (int bad = find_event(event)) return bad;
  Stream* stream;
  if (int bad = find_stream(handle, current, &stream)) return bad;
  if (stream->context != event->context) return kInvalidHandle;
  if (stream->capture != nullptr) {
    if (stream->capture->invalid) return kCaptureInvalidated;
    event->capture = stream->capture;
    event->frontier = stream->frontier;
    event->recorded = true;
    return kSuccess;
  }
  auto stamp = std::make_shared<std::atomic<uint64_t>>(0);
  if (int bad = enqueue(stream, [stamp] { *stamp = now(); })) return bad;
  event->nanoseconds = stamp;
  event->mark = stream->mark();
  event->capture = nullptr;
  event->recorded = true;
  return kSuccess;
}

// In a capture an external event is a node, which each launch of the graph performs.
API int cuEventRecordWithFlags(Event* event, Stream* handle, unsigned flags) {
  if (flags == 0) return cuEventRecord(event, handle);
  ENTER_CONTEXT(current);
  if (flags != kEventRecordExternal) return kInvalidValue;
  if (int bad = find_event(event)) return bad;
  Stream* stream;
  if (int bad = find_stream(handle, current, &stream)) return bad;
  if (stream->context != event->context) return kInvalidHandle;
  if (stream->capture == nullptr) return kIllegalState;
  auto stamp = std::make_shared<std::atomic<uint64_t>>(0);
  if (int bad = record(stream, [stamp] { *stamp = now(); })) return bad;
  event->nanoseconds = stamp;
  event->mark = Mark{};
  event->capture = nullptr;
  event->recorded = true;
  return kSuccess;
}

// Streams that were destroyed count, those that are captured spoil it.
API int cuCtxRecordEvent(Context* context, Event* event) {
  ENTER_CONTEXT(current);
  if (int bad = find_event(event)) return bad;
  if (context != event->context) return kInvalidHandle;
  if (spoil_captures(context)) return kCaptureUnsupported;
  std::vector<Mark> all = context->left;
  all.push_back(context->legacy->mark());
  for (Stream* s : context->streams) all.push_back(s->mark());
  auto stamp = std::make_shared<std::atomic<uint64_t>>(0);
  Stream behind;
  behind.context = context;
  behind.queue->push([all, stamp] {
    for (const Mark& m : all) m.wait();
    *stamp = now();
  });
  event->nanoseconds = stamp;
  event->mark = behind.mark();
  event->capture = nullptr;
  event->recorded = true;
  behind.queue->close();
  return kSuccess;
}

// Makes what comes next on the stream wait. An event of a capture draws the stream
// into that capture.
API int cuStreamWaitEvent(Stream* handle, Event* event, unsigned flags) {
  ENTER_CONTEXT(current);
  Stream* stream;
  if (int bad = find_stream(handle, current, &stream)) return bad;
  if (int bad = find_event(event)) return bad;
  if (flags != 0) return kInvalidValue;
  if (event->capture != nullptr) {
    std::shared_ptr<Capture> c = event->capture;
    if (c->invalid) return kCaptureInvalidated;
    if (c->members.empty()) return kSuccess;  // ended: the event stands for nothing any more
    if (stream->capture != nullptr && stream->capture != c) {
      invalidate(stream);
      invalidate(c->origin);
      return kCaptureMerge;
    }
    if (stream == stream->context->legacy.get()) {
      invalidate(c->origin);
      return kCaptureImplicit;
    }
    if (stream->capture == nullptr) {
      stream->capture = c;
      stream->lane = c->graph->lanes++;
      stream->frontier.clear();
      c->members.insert(stream);
    }
    for (int n : event->frontier) stream->frontier.push_back(n);
    return kSuccess;
  }
  if (!event->recorded) return kSuccess;
  if (stream->capture != nullptr) {
    // A dependency on work outside of the graph.
    invalidate(stream);
    return kCaptureIsolation;
  }
  if (event->mark.reached()) return kSuccess;
  return enqueue(stream, [mark = event->mark] { mark.wait(); });
}

API int cuEventQuery(Event* event) {
  ENTER_CONTEXT(current);
  if (int bad = check_event(event)) return bad;
  return event->mark.reached() ? kSuccess : kNotReady;
}

API int cuEventSynchronize(Event* event) {
  ENTER_CONTEXT(current);
  if (int bad = check_event(event)) return bad;
  const Mark mark = event->mark;
  Context* context = event->context;
  lock.unlock();
  mark.wait();
  return context->fault;
}

API int cuEventElapsedTime(float* milliseconds, Event* start, Event* end) {
  ENTER_CONTEXT(current);
  if (milliseconds == nullptr) return kInvalidValue;
  for (Event* e : {start, end}) {
    if (int bad = check_event(e)) return bad;
    if (!e->recorded || (e->flags & kEventDisableTiming) != 0) return kInvalidHandle;
  }
  if (start->context != end->context) return kInvalidHandle;
  if (!start->mark.reached() || !end->mark.reached()) return kNotReady;
  if (*start->nanoseconds == 0 || *end->nanoseconds == 0) return kInvalidHandle;  // of a graph that was not launched
  *milliseconds = static_cast<float>(static_cast<double>(*end->nanoseconds) - static_cast<double>(*start->nanoseconds)) / 1e6f;
  return kSuccess;
}
