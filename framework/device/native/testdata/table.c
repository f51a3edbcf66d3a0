// A table whose faults are macros, for tests of what is refused. Its functions do nothing.
#include <mscclpp/device_backend.h>
#include <string.h>

#ifndef SIZE
#define SIZE sizeof(mscclpp_device_backend)
#endif
#ifndef VERSION
#define VERSION MSCCLPP_DEVICE_BACKEND_VERSION
#endif
#ifndef TYPE
#define TYPE "acme"
#endif
#ifndef CAPABILITIES
#define CAPABILITIES MSCCLPP_DEVICE_HAS_SHARES
#endif
#ifndef KIND
#define KIND "acme-handle"
#endif
#ifndef COUNT
#define COUNT 2
#endif
#ifndef CODE
#define CODE 42
#endif
#ifndef SYMBOL
#define SYMBOL mscclpp_device_backend_v1
#endif

static mscclpp_device_status nothing(void) {
  const mscclpp_device_status st = {CODE, 0, CODE == 0 ? 0 : "acmeDo"};
  return st;
}

static mscclpp_device_status good(void) {
  const mscclpp_device_status st = {0, 0, 0};
  return st;
}

static mscclpp_device_status count(int32_t* n) {
  *n = COUNT;
  return good();
}

static void describe(int32_t code, mscclpp_device_error* e) {
  if (code != 42) return;
  strcpy(e->name, "ACME_ERROR_TIRED");
  strcpy(e->text, "the device sleeps");
  e->error_class = MSCCLPP_DEVICE_CLASS_UNAVAILABLE;
  e->lost = 1;
}

// Device 0 has the UUID 1…, and links to devices 2… and 0000:3b:00.0, unless LINK changes one or OWN the device.
static mscclpp_device_status info(mscclpp_device* d, mscclpp_device_info* i) {
  (void)d;
  strcpy(i->archs, "acme1");
  memset(i->uuid, 0x11, sizeof i->uuid);
#ifdef OWN
  OWN;
#endif
  return good();
}

static mscclpp_device_status next_link(mscclpp_device* d, uint32_t index, mscclpp_device_link* l) {
  (void)d;
#ifdef UNKNOWN_FROM
  if (index >= UNKNOWN_FROM) return (mscclpp_device_status){MSCCLPP_DEVICE_UNSUPPORTED, 0, "acmeLinks"};
#endif
#ifndef ENDLESS
  if (index >= 2) return (mscclpp_device_status){MSCCLPP_DEVICE_NOT_FOUND, 0, 0};
#endif
  l->count = 1 + index, l->rate = 100000000000, l->latency = 900;
  strcpy(l->kind, "AcmeLink 2");
  memset(l->uuid, 0x20 + (index >> 8), sizeof l->uuid);
  l->uuid[15] = index & 255;
  if (index == 1) strcpy(l->pci, "0000:3B:00.0"), l->switched = 1;
#ifdef LINK
  if (index == 1) LINK;
#endif
  return good();
}

const mscclpp_device_backend* SYMBOL(void) {
  static const mscclpp_device_share_kind kinds[] = {{sizeof(mscclpp_device_share_kind), KIND, 0, 0}};
  static mscclpp_device_backend t;
  void** entry = (void**)&t.start;
  while (entry < (void**)(&t + 1)) *entry++ = (void*)nothing;
  t.size = SIZE, t.version = VERSION, t.type = TYPE, t.product = "ACME 1", t.capabilities = CAPABILITIES;
  t.share_kinds = kinds, t.share_count = 1;
  t.start = good, t.count = count, t.describe = describe, t.info = info, t.link = next_link;
#ifdef LACKS
  t.LACKS = 0;
#endif
#ifdef NO_TABLE
  return 0;
#endif
  return &t;
}
