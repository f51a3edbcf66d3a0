// Graphs: what a capture has recorded, and launches of it.
#include "toy.h"

namespace toy {

struct Graph {
  std::shared_ptr<Recording> recording;
};

namespace {

Status begin(mscclpp_device* device, mscclpp_device_handle stream, int32_t) {
  Stream* s = stream == 0 ? nullptr : stream_of(of(device), stream);
  if (s == nullptr) return answer(kBadHandle, "toyCaptureBegin");
  std::lock_guard<std::mutex> lock(s->mutex);
  if (s->recording) return answer(kBadCapture, "toyCaptureBegin");
  s->recording = std::make_shared<Recording>();
  s->recording->origin = s, s->branch = 0;
  s->recording->branches.emplace_back();
  s->recording->streams.push_back(s);
  return answer(0, nullptr);
}

Status end(mscclpp_device* device, mscclpp_device_handle stream, mscclpp_device_handle* out, uint64_t* nodes) {
  Device* d = of(device);
  Stream* s = stream_of(d, stream);
  if (s == nullptr) return answer(kBadHandle, "toyCaptureEnd");
  std::shared_ptr<Recording> r;
  {
    std::lock_guard<std::mutex> lock(s->mutex);
    r = s->recording;
  }
  if (!r || r->origin != s) return answer(kBadCapture, "toyCaptureEnd");
  for (Stream* each : r->streams) {
    std::lock_guard<std::mutex> lock(each->mutex);
    each->recording = nullptr;
  }
  *nodes = 0;
  for (auto& b : r->branches) *nodes += b.size();
  auto* g = new Graph{r};
  std::lock_guard<std::mutex> lock(d->mutex);
  d->graphs.insert(g);
  *out = reinterpret_cast<mscclpp_device_handle>(g);
  return answer(0, nullptr);
}

// Runs the branches beside each other. The marks are made anew for each launch.
void play(Device* d, const Recording& r) {
  std::map<Mark*, std::shared_ptr<Mark>> marks;
  for (Mark* m : r.marks) marks[m] = std::make_shared<Mark>();
  const auto run = [&](const std::vector<Operation>& branch) {
    for (Operation o : branch) {
      if (o.reach) o.reach = marks[o.reach.get()];
      if (o.await && marks.count(o.await.get()) == 1) o.await = marks[o.await.get()];
      perform(d, o);
    }
  };
  std::vector<std::thread> beside;
  for (size_t i = 1; i < r.branches.size(); ++i) beside.push_back(start([&, i] { run(r.branches[i]); }));
  run(r.branches[0]);
  for (auto& t : beside) t.join();
}

Status launch(mscclpp_device* device, mscclpp_device_handle graph, mscclpp_device_handle stream) {
  Device* d = of(device);
  std::shared_ptr<Recording> r;
  {
    std::lock_guard<std::mutex> lock(d->mutex);
    auto* g = reinterpret_cast<Graph*>(graph);
    if (d->graphs.count(g) == 0) return answer(kBadHandle, "toyGraphLaunch");
    r = g->recording;
  }
  return enqueue(d, stream, {[d, r] { play(d, *r); }, nullptr, nullptr}, "toyGraphLaunch");
}

Status destroy(mscclpp_device* device, mscclpp_device_handle graph) {
  std::lock_guard<std::mutex> lock(of(device)->mutex);
  auto* g = reinterpret_cast<Graph*>(graph);
  if (of(device)->graphs.erase(g) == 0) return answer(kBadHandle, "toyGraphDestroy");
  delete g;
  return answer(0, nullptr);
}

}  // namespace

void fill_graph(mscclpp_device_backend* t) {
  t->capture_begin = begin, t->capture_end = end, t->graph_launch = launch, t->graph_destroy = destroy;
}

}  // namespace toy
