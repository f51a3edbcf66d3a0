// Events: points in streams.
#include "toy.h"

namespace toy {
namespace {

Event* event_of(Device* d, mscclpp_device_handle h) {
  std::lock_guard<std::mutex> lock(d->mutex);
  auto* e = reinterpret_cast<Event*>(h);
  return d->events.count(e) == 1 ? e : nullptr;
}

Status create(mscclpp_device* device, int32_t, mscclpp_device_handle* out) {
  auto* e = new Event;
  std::lock_guard<std::mutex> lock(of(device)->mutex);
  of(device)->events.insert(e);
  *out = reinterpret_cast<mscclpp_device_handle>(e);
  return answer(0, nullptr);
}

Status destroy(mscclpp_device* device, mscclpp_device_handle h) {
  auto* e = reinterpret_cast<Event*>(h);
  std::lock_guard<std::mutex> lock(of(device)->mutex);
  if (of(device)->events.erase(e) == 0) return answer(kBadHandle, "toyEventDestroy");
  delete e;
  return answer(0, nullptr);
}

Status record(mscclpp_device* device, mscclpp_device_handle event, mscclpp_device_handle stream) {
  Device* d = of(device);
  Event* e = event_of(d, event);
  Stream* s = stream_of(d, stream);
  if (e == nullptr || s == nullptr) return answer(kBadHandle, "toyEventRecord");
  auto mark = std::make_shared<Mark>();
  std::shared_ptr<Recording> recording;
  {
    std::lock_guard<std::mutex> lock(s->mutex);
    recording = s->recording;
    if (recording) {
      std::lock_guard<std::mutex> both(recording->mutex);
      recording->marks.insert(mark.get());
    }
  }
  const Status st = enqueue(d, stream, {nullptr, mark, nullptr}, "toyEventRecord");
  if (st.code != 0) return st;
  std::lock_guard<std::mutex> lock(e->mutex);
  e->last = mark, e->recording = recording;
  return st;
}

// A stream that waits for a mark of a recording takes part in it from now on.
bool join(Stream* s, const std::shared_ptr<Recording>& r) {
  std::lock_guard<std::mutex> lock(s->mutex);
  if (s->recording) return s->recording == r;
  std::lock_guard<std::mutex> both(r->mutex);
  s->recording = r, s->branch = r->branches.size();
  r->branches.emplace_back();
  r->streams.push_back(s);
  return true;
}

Status wait(mscclpp_device* device, mscclpp_device_handle event, mscclpp_device_handle stream) {
  Device* d = of(device);
  Event* e = event_of(d, event);
  Stream* s = stream_of(d, stream);
  if (e == nullptr || s == nullptr) return answer(kBadHandle, "toyEventWait");
  std::shared_ptr<Mark> mark;
  std::shared_ptr<Recording> recording;
  {
    std::lock_guard<std::mutex> lock(e->mutex);
    mark = e->last, recording = e->recording;
  }
  if (!mark) return answer(0, nullptr);
  if (recording && !join(s, recording)) return answer(kBadCapture, "toyEventWait");
  return enqueue(d, stream, {nullptr, nullptr, mark}, "toyEventWait");
}

Status last_of(Device* d, mscclpp_device_handle event, std::shared_ptr<Mark>* mark, const char* call) {
  Event* e = event_of(d, event);
  if (e == nullptr) return answer(kBadHandle, call);
  std::lock_guard<std::mutex> lock(e->mutex);
  if (e->recording) return answer(kBadCapture, call);
  *mark = e->last;
  return answer(0, nullptr);
}

Status query(mscclpp_device* device, mscclpp_device_handle event) {
  std::shared_ptr<Mark> mark;
  const Status st = last_of(of(device), event, &mark, "toyEventQuery");
  if (st.code != 0 || !mark) return st;
  if (of(device)->lost.load()) return answer(MSCCLPP_DEVICE_LOST, "toyEventQuery");
  std::lock_guard<std::mutex> lock(mark->mutex);
  return answer(mark->done ? 0 : MSCCLPP_DEVICE_NOT_READY, "toyEventQuery");
}

Status sync(mscclpp_device* device, mscclpp_device_handle event) {
  std::shared_ptr<Mark> mark;
  const Status st = last_of(of(device), event, &mark, "toyEventSync");
  if (st.code != 0 || !mark) return st;
  mark->wait();
  return answer(of(device)->lost.load() ? MSCCLPP_DEVICE_LOST : 0, "toyEventSync");
}

Status elapsed(mscclpp_device* device, mscclpp_device_handle start, mscclpp_device_handle end, uint64_t* nanoseconds) {
  std::shared_ptr<Mark> a, b;
  Status st = last_of(of(device), start, &a, "toyEventElapsed");
  if (st.code == 0) st = last_of(of(device), end, &b, "toyEventElapsed");
  if (st.code != 0) return st;
  if (!a || !b) return answer(MSCCLPP_DEVICE_INVALID, "toyEventElapsed");
  std::scoped_lock lock(a->mutex, b->mutex);
  if (!a->done || !b->done) return answer(MSCCLPP_DEVICE_NOT_READY, "toyEventElapsed");
  *nanoseconds = b->at > a->at ? b->at - a->at : 0;
  return answer(0, nullptr);
}

}  // namespace

void fill_event(mscclpp_device_backend* t) {
  t->event_create = create, t->event_destroy = destroy, t->event_record = record, t->event_wait = wait;
  t->event_query = query, t->event_sync = sync, t->event_elapsed = elapsed;
}

}  // namespace toy
