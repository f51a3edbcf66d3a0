// Graphs: each chain of nodes has a queue of its own, so that branches run beside
// each other, as kernels of two branches that wait for each other need.
#include "state.h"

namespace {

// One launch of a graph.
class Run {
 public:
  explicit Run(std::shared_ptr<Graph> graph) : graph_(std::move(graph)), done_(graph_->nodes.size()), lanes_(graph_->lanes) {}

  void start() {
    std::lock_guard<std::mutex> lock(mutex_);
    started_ = true;
    changed_.notify_all();
  }

  void lane(int number) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return started_; });
    for (size_t i = 0; i < graph_->nodes.size(); ++i) {
      const Node& n = graph_->nodes[i];
      if (n.lane != number) continue;
      for (int before : n.after) changed_.wait(lock, [&] { return done_[before]; });
      lock.unlock();
      n.run();
      lock.lock();
      done_[i] = true;
      changed_.notify_all();
    }
    --lanes_;
    changed_.notify_all();
  }

  void finish() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return lanes_ == 0; });
  }

 private:
  std::shared_ptr<Graph> graph_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> done_;
  int lanes_;
  bool started_ = false;
};

}  // namespace

API int cuGraphGetNodes(GraphHandle* graph, void** nodes, size_t* count) {
  ENTER();
  if (state().graphs.count(graph) == 0 || count == nullptr) return kInvalidValue;
  auto& all = graph->graph->nodes;
  if (nodes != nullptr) {
    for (size_t i = 0; i < *count; ++i) nodes[i] = i < all.size() ? &all[i] : nullptr;
  }
  if (nodes == nullptr || *count > all.size()) *count = all.size();
  return kSuccess;
}

API int cuGraphInstantiateWithFlags(GraphExec** exec, GraphHandle* graph, unsigned long long flags) {
  ENTER_CONTEXT(current);
  if (exec == nullptr || flags > 15 || state().graphs.count(graph) == 0) return kInvalidValue;
  GraphExec* e = new GraphExec;
  e->graph = graph->graph;
  for (int i = 1; i < e->graph->lanes; ++i) e->lanes.push_back(std::make_shared<Queue>());
  state().execs.insert(e);
  *exec = e;
  return kSuccess;
}

API int cuGraphLaunch(GraphExec* exec, Stream* handle) {
  ENTER_CONTEXT(current);
  if (state().execs.count(exec) == 0) return kInvalidValue;
  Stream* stream;
  if (int bad = find_stream(handle, current, &stream)) return bad;
  if (stream->capture != nullptr) {
    invalidate(stream);
    return kCaptureUnsupported;
  }
  auto run = std::make_shared<Run>(exec->graph);
  // A graph does not run beside itself.
  const int bad = enqueue(stream, [run, last = exec->last] {
    last.wait();
    run->start();
    run->lane(0);
    run->finish();
  });
  if (bad != kSuccess) return bad;
  for (size_t i = 0; i < exec->lanes.size(); ++i) {
    exec->lanes[i]->push([run, i] { run->lane(static_cast<int>(i) + 1); });
  }
  exec->last = stream->mark();
  return kSuccess;
}

API int cuGraphExecDestroy(GraphExec* exec) {
  ENTER();
  if (int bad = check_captures()) return bad;
  if (state().execs.erase(exec) == 0) return kInvalidValue;
  for (auto& q : exec->lanes) q->close();
  delete exec;
  return kSuccess;
}

API int cuGraphDestroy(GraphHandle* graph) {
  ENTER();
  if (state().graphs.erase(graph) == 0) return kInvalidValue;
  delete graph;
  return kSuccess;
}
