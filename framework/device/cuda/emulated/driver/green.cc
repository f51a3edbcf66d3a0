// Green contexts: a part of the processors of a device, for streams. Kernels run as they do elsewhere.

#include "state.h"

namespace {

constexpr unsigned kUnit = 8;
constexpr int kSM = 1;

struct Resource {
  int type;
  unsigned char padding[92];
  unsigned processors;
  unsigned char room[44];
  Resource* next;
};

std::set<GreenContext*>& contexts() {
  static auto* all = new std::set<GreenContext*>;
  return *all;
}

}  // namespace

API int cuDeviceGetDevResource(int device, Resource* resource, int type) {
  ENTER();
  if (!valid_device(device)) return kInvalidDevice;
  if (resource == nullptr || type != kSM) return kInvalidValue;
  *resource = Resource{};
  resource->type = kSM;
  resource->processors = kProcessors;
  return kSuccess;
}

API int cuDevSmResourceSplitByCount(Resource* parts, unsigned* count, const Resource* from, Resource* rest, unsigned flags, unsigned least) {
  ENTER();
  if (count == nullptr || from == nullptr || from->type != kSM || flags != 0) return kInvalidValue;
  const unsigned each = least < kUnit ? kUnit : (least + kUnit - 1) / kUnit * kUnit;
  const unsigned most = from->processors / each;
  if (most == 0) return kInvalidValue;
  if (parts == nullptr || *count > most) *count = most;
  for (unsigned i = 0; parts != nullptr && i < *count; i++) {
    parts[i] = *from;
    parts[i].processors = each;
  }
  if (rest != nullptr) {
    *rest = *from;
    rest->processors -= *count * each;
  }
  return kSuccess;
}

// A description is the number of processors.
API int cuDevResourceGenerateDesc(uintptr_t* description, const Resource* resources, unsigned count) {
  ENTER();
  if (description == nullptr || resources == nullptr || count != 1 || resources->type != kSM) return kInvalidValue;
  *description = resources->processors;
  return kSuccess;
}

API int cuGreenCtxCreate(GreenContext** green, uintptr_t description, int device, unsigned flags) {
  ENTER();
  if (!valid_device(device)) return kInvalidDevice;
  if (green == nullptr || description == 0 || flags != 1) return kInvalidValue;
  *green = new GreenContext{&state().devices[device]->context, static_cast<unsigned>(description)};
  contexts().insert(*green);
  return kSuccess;
}

API int cuGreenCtxStreamCreate(Stream** stream, GreenContext* green, unsigned flags, int priority) {
  ENTER();
  if (contexts().count(green) == 0) return kInvalidHandle;
  if (stream == nullptr || flags != 1) return kInvalidValue;
  if (!alive(green->context)) return kContextIsDestroyed;
  *stream = make_stream(green->context, flags, priority);
  (*stream)->green = green;
  return kSuccess;
}

API int cuGreenCtxGetDevResource(GreenContext* green, Resource* resource, int type) {
  ENTER();
  if (contexts().count(green) == 0) return kInvalidHandle;
  if (resource == nullptr || type != kSM) return kInvalidValue;
  *resource = Resource{};
  resource->type = kSM;
  resource->processors = green->processors;
  return kSuccess;
}

API int cuStreamGetGreenCtx(Stream* handle, GreenContext** green) {
  ENTER_CONTEXT(current);
  Stream* stream;
  if (int bad = find_stream(handle, current, &stream)) return bad;
  if (green == nullptr) return kInvalidValue;
  *green = stream->green;
  return kSuccess;
}
