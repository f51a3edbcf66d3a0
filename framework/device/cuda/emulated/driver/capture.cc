// Captures: what streams enqueue is recorded as the nodes of a graph.
#include <algorithm>

#include "state.h"

namespace {

thread_local int t_mode = kModeGlobal;

// Takes the capture off its streams.
void finish(const std::shared_ptr<Capture>& c) {
  for (Stream* s : c->members) {
    s->capture = nullptr;
    s->frontier.clear();
  }
  c->members.clear();
  state().captures.erase(c);
}

// Whether everything recorded comes before the last node of the stream: only then
// does the end of that stream mean the end of the graph.
bool joined(const Graph& g, const Stream& origin) {
  std::vector<bool> before(g.nodes.size());
  std::vector<int> open = origin.frontier;
  while (!open.empty()) {
    const int n = open.back();
    open.pop_back();
    if (before[n]) continue;
    before[n] = true;
    open.insert(open.end(), g.nodes[n].after.begin(), g.nodes[n].after.end());
  }
  return std::all_of(before.begin(), before.end(), [](bool b) { return b; });
}

}  // namespace

int check_captures() {
  bool forbidden = false;
  for (const auto& c : state().captures) {
    const bool everywhere = t_mode == kModeGlobal && c->mode == kModeGlobal;
    const bool here = t_mode != kModeRelaxed && c->mode != kModeRelaxed && c->thread == thread_id();
    if (!everywhere && !here) continue;
    c->invalid = true;
    forbidden = true;
  }
  return forbidden ? kCaptureUnsupported : kSuccess;
}

void invalidate(Stream* stream) {
  if (stream->capture != nullptr) stream->capture->invalid = true;
}

bool spoil_captures(Context* context) {
  bool captures = false;
  for (Stream* s : context->streams) {
    if (s->capture == nullptr) continue;
    invalidate(s);
    captures = true;
  }
  return captures;
}

void leave_capture(Stream* stream) {
  std::shared_ptr<Capture> c = stream->capture;
  if (c == nullptr) return;
  c->invalid = true;
  c->members.erase(stream);
  if (c->origin == stream) finish(c);  // no other stream may end it
}

int record(Stream* stream, Op op) {
  Capture& c = *stream->capture;
  if (c.invalid) return kCaptureInvalidated;
  c.graph->nodes.push_back(Node{std::move(op), stream->lane, stream->frontier});
  stream->frontier = {static_cast<int>(c.graph->nodes.size()) - 1};
  return kSuccess;
}

API int cuThreadExchangeStreamCaptureMode(int* mode) {
  ENTER();
  if (mode == nullptr || *mode < kModeGlobal || *mode > kModeRelaxed) return kInvalidValue;
  std::swap(*mode, t_mode);
  return kSuccess;
}

API int cuStreamIsCapturing(Stream* handle, int* status) {
  ENTER_CONTEXT(current);
  Stream* stream;
  if (int bad = find_stream(handle, current, &stream)) return bad;
  if (status == nullptr) return kInvalidValue;
  if (stream == current->legacy.get()) {
    for (Stream* s : current->streams) {
      if (s->capture != nullptr && (s->flags & kStreamNonBlocking) == 0) return kCaptureImplicit;
    }
  }
  *status = stream->capture == nullptr ? kStatusNone : stream->capture->invalid ? kStatusInvalidated : kStatusActive;
  return kSuccess;
}

API int cuStreamBeginCapture_v2(Stream* handle, int mode) {
  ENTER_CONTEXT(current);
  Stream* stream;
  if (int bad = find_stream(handle, current, &stream)) return bad;
  if (mode < kModeGlobal || mode > kModeRelaxed) return kInvalidValue;
  if (stream == stream->context->legacy.get()) return kCaptureUnsupported;
  if (stream->capture != nullptr) return kIllegalState;
  auto c = std::make_shared<Capture>();
  c->origin = stream;
  c->mode = mode;
  c->thread = thread_id();
  c->members = {stream};
  stream->capture = c;
  stream->lane = 0;
  stream->frontier.clear();
  state().captures.insert(c);
  return kSuccess;
}

API int cuStreamEndCapture(Stream* handle, GraphHandle** graph) {
  ENTER_CONTEXT(current);
  Stream* stream;
  if (int bad = find_stream(handle, current, &stream)) return bad;
  if (graph == nullptr) return kInvalidValue;
  *graph = nullptr;
  std::shared_ptr<Capture> c = stream->capture;
  if (c == nullptr) return kIllegalState;
  if (c->mode != kModeRelaxed && c->thread != thread_id()) return kCaptureWrongThread;
  if (c->origin != stream) {
    c->invalid = true;
    return kCaptureUnmatched;
  }
  const bool whole = joined(*c->graph, *stream);
  finish(c);
  if (c->invalid) return kCaptureInvalidated;
  if (!whole) return kCaptureUnjoined;
  *graph = new GraphHandle{c->graph};
  state().graphs.insert(*graph);
  return kSuccess;
}
