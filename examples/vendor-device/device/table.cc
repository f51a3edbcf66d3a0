// The table, and the entries that open and describe.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "toy.h"

namespace toy {
namespace {

Status start_up() { return answer(0, nullptr); }

Status count(int32_t* devices) {
  *devices = kDevices;
  return answer(0, nullptr);
}

// Options: memory=BYTES, links=all or links=pairs.
bool read(const char* options, Device* d) {
  std::string text = options;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.empty()) continue;
    if (line == "links=all" || line == "links=pairs") {
      d->pairs = line == "links=pairs";
      continue;
    }
    if (line.rfind("memory=", 0) != 0) return false;
    char* rest = nullptr;
    d->memory = strtoull(line.c_str() + 7, &rest, 10);
    if (*rest != 0 || d->memory == 0) return false;
  }
  return true;
}

Status open(int32_t index, const char* options, mscclpp_device** out) {
  if (index < 0 || index >= kDevices) return answer(MSCCLPP_DEVICE_INVALID, "toyOpen");
  auto d = std::make_unique<Device>();
  d->index = index;
  if (!read(options, d.get())) return answer(MSCCLPP_DEVICE_INVALID, "toyOpen, options: expected memory=BYTES, links=all or links=pairs");
  d->standard = std::make_unique<Stream>(d.get());
  *out = reinterpret_cast<mscclpp_device*>(d.release());
  return answer(0, nullptr);
}

Status close(mscclpp_device* device) {
  Device* d = of(device);
  {
    std::unique_lock<std::mutex> lock(d->mutex);
    d->left.wait(lock, [d] { return d->leaving == 0; });
  }
  delete d;
  return answer(0, nullptr);
}

// The UUID is unique on this host. A toy that could be taken out would have a number of its own.
void name(int index, uint8_t (&uuid)[16]) { snprintf(reinterpret_cast<char*>(uuid), sizeof uuid, "toy-%d", index); }

Status info(mscclpp_device* device, mscclpp_device_info* i) {
  snprintf(i->name, sizeof i->name, "Toy accelerator");
  snprintf(i->archs, sizeof i->archs, "toy1");
  name(of(device)->index, i->uuid);
  i->processors = kProcessors, i->shared_most = kSharedMost, i->ordered = 1;
  return answer(0, nullptr);
}

// Two links to each device that is joined. They are as quick as memory of the host.
Status link(mscclpp_device* device, uint32_t index, mscclpp_device_link* l) {
  const Device* d = of(device);
  for (int other = 0; other < kDevices; other++) {
    if (other == d->index || (d->pairs && other / 2 != d->index / 2) || index-- != 0) continue;
    name(other, l->uuid);
    snprintf(l->kind, sizeof l->kind, "toylink");
    l->count = 2, l->rate = 8000000000, l->latency = 500;
    return answer(0, nullptr);
  }
  return answer(MSCCLPP_DEVICE_NOT_FOUND, "toyLink");
}

void describe(int32_t code, mscclpp_device_error* e) {
  const struct {
    const char *name, *text;
    int error_class;
  } words[] = {
      {"TOY_ERROR_ADDRESS", "no memory of the device begins there", MSCCLPP_DEVICE_CLASS_INVALID},
      {"TOY_ERROR_HANDLE", "no such stream, event, module or graph", MSCCLPP_DEVICE_CLASS_INVALID},
      {"TOY_ERROR_IMAGE", "not an image for toys", MSCCLPP_DEVICE_CLASS_INVALID},
      {"TOY_ERROR_CAPTURE", "not while a stream is captured", MSCCLPP_DEVICE_CLASS_INVALID},
  };
  if (code < 1 || code > static_cast<int32_t>(sizeof words / sizeof *words)) return;
  snprintf(e->name, sizeof e->name, "%s", words[code - 1].name);
  snprintf(e->text, sizeof e->text, "%s", words[code - 1].text);
  e->error_class = words[code - 1].error_class;
}

mscclpp_device_backend make() {
  static const mscclpp_device_share_kind kinds[] = {{sizeof(mscclpp_device_share_kind), "fd:toy", 0, 0}};
  mscclpp_device_backend t = {};
  t.size = sizeof t, t.version = MSCCLPP_DEVICE_BACKEND_VERSION;
  t.type = "toy", t.product = "toy accelerator 1.0";
  t.share_kinds = kinds, t.share_count = 1;
  t.capabilities = MSCCLPP_DEVICE_HAS_SHARES | MSCCLPP_DEVICE_HAS_PEERS | MSCCLPP_DEVICE_HAS_HOST | MSCCLPP_DEVICE_HAS_RANGES | MSCCLPP_DEVICE_HAS_STREAMS |
                   MSCCLPP_DEVICE_HAS_EVENTS | MSCCLPP_DEVICE_HAS_TIMES | MSCCLPP_DEVICE_HAS_GRAPHS | MSCCLPP_DEVICE_HAS_WAITS | MSCCLPP_DEVICE_HAS_LINKS;
  t.start = start_up, t.count = count, t.open = open, t.close = close, t.info = info, t.link = link, t.describe = describe;
  fill_memory(&t);
  fill_queue(&t);
  fill_event(&t);
  fill_graph(&t);
  fill_kernel(&t);
  return t;
}

}  // namespace
}  // namespace toy

extern "C" __attribute__((visibility("default"))) const mscclpp_device_backend* mscclpp_device_backend_v1(void) {
  static const mscclpp_device_backend table = toy::make();
  return &table;
}
