// Runs the actor on an NVIDIA GPU and compares with the same source on the CPU:
// reductions bit by bit, and every kind of step. run.sh builds and starts it.
//
//	devicetest FOLDER-OF-PTX ARCH FOLDER-OF-SHARED-OBJECTS [TYPES [reductions]]
#include <mscclpp/trigger.h>
#include <mscclpp/types.h>

#include <chrono>
#include <random>

#include "../kernels/actor.h"
#include "driver.h"

using namespace mscclpp;
using cuda::Address;
using cuda::Handle;

static const char* const kTypes[kDataTypes] = {"f32", "f16", "bf16", "f64", "i8", "u8", "i32", "u32", "i64", "u64", "e4m3", "e5m2", "e4m3b15"};
static const size_t kSizes[kDataTypes] = {4, 2, 2, 8, 1, 1, 4, 4, 8, 8, 1, 1, 1};
static int failures = 0, checks = 0;

#define CHECK(ok, ...)                   \
  do {                                   \
    ++checks;                            \
    if (!(ok) && ++failures < 40) {      \
      printf("%s:%d: ", __FILE__, __LINE__); \
      printf(__VA_ARGS__);               \
      printf("\n");                      \
    }                                    \
  } while (0)

static bool isNaN(uint32_t type, const unsigned char* p) {
  uint64_t v = 0;
  memcpy(&v, p, kSizes[type]);
  switch (type) {
    case kFloat32: return (v & 0x7fffffff) > 0x7f800000;
    case kFloat64: return (v & 0x7fffffffffffffff) > 0x7ff0000000000000;
    case kFloat16: return (v & 0x7fff) > 0x7c00;
    case kBFloat16: return (v & 0x7fff) > 0x7f80;
    case kFloat8E4M3: return (v & 0x7f) == 0x7f;
    case kFloat8E5M2: return (v & 0x7f) > 0x7c;
    default: return false;
  }
}

// --- reductions

struct Reducer {
  Handle gpu;
  void (*cpu)(const actor::ReduceArgs*, const LaunchShape*);
  uint32_t type;
  std::mt19937_64 random{7};
  Address device = 0;
  std::vector<unsigned char> arena;
  static constexpr size_t kArena = 16 << 20;

  void one(uint32_t op, uint32_t n, size_t count, size_t shift, uint32_t source, unsigned grid, unsigned block) {
    const size_t size = kSizes[type], bytes = count * size, room = (2 * bytes + 127 + 16) / 64 * 64;
    std::vector<const void*> host(n), remote(n);
    actor::ReduceArgs a = {};
    a.count = count;
    a.scale = 3;
    a.n = n;
    a.op = op;
    a.source = source;
    a.self = n / 2;
    a.flag = 77;
    for (uint32_t i = 0; i < n; ++i) {
      const bool row = source != actor::kPlain && i != a.self;
      unsigned char* h = arena.data() + i * room + (row ? 0 : shift + i % 3);
      fill(h, bytes, row);
      host[i] = h;
      remote[i] = reinterpret_cast<void*>(device + (h - arena.data()));
    }
    unsigned char* out = arena.data() + n * room + shift;
    memset(out, 0, bytes);
    cuda::toDevice(device, arena.data(), (n + 1) * room);
    a.inputs = host.data();
    a.out = out;
    uint32_t failed = 0;
    a.failed = &failed;
    WaitControl idle = {};
    a.control = &idle;
    cpu(&a, nullptr);

    const void** table = cuda::shared<const void*>(static_cast<size_t>(n));
    memcpy(table, remote.data(), n * sizeof(void*));
    actor::ReduceArgs g = a;
    g.inputs = table;
    g.out = reinterpret_cast<void*>(device + (out - arena.data()));
    g.failed = cuda::shared<uint32_t>(0u);
    g.control = cuda::shared(WaitControl{});
    cuda::launch(gpu, grid, block, nullptr, g);
    cuda::wait(nullptr);
    std::vector<unsigned char> got(bytes);
    cuda::toHost(got.data(), reinterpret_cast<Address>(g.out), bytes);
    CHECK(*g.failed == 0, "%s: a wait was left", kTypes[type]);
    for (size_t e = 0; e < count; ++e) {
      const unsigned char *x = got.data() + e * size, *y = out + e * size;
      if (memcmp(x, y, size) == 0 || (isNaN(type, x) && isNaN(type, y))) continue;
      uint64_t v = 0, w = 0;
      memcpy(&v, x, size);
      memcpy(&w, y, size);
      CHECK(false, "%s op %u, %u inputs, source %u, %ux%u, shift %zu: element %zu of %zu is %llx, on the CPU %llx", kTypes[type], op, n,
            source, grid, block, shift, e, count, static_cast<unsigned long long>(v), static_cast<unsigned long long>(w));
      break;
    }
    ++checks;
    cuda::call("cuMemFreeHost", static_cast<void*>(table));
    cuda::call("cuMemFreeHost", static_cast<void*>(g.failed));
    cuda::call("cuMemFreeHost", static_cast<void*>(g.control));
  }

  // Half random patterns, half small values; as packets if row.
  void fill(unsigned char* p, size_t bytes, bool row) {
    std::vector<unsigned char> payload((bytes + 7) / 8 * 8);
    for (size_t i = 0; i < bytes; i += kSizes[type]) {
      uint64_t v = random();
      if (random() % 2 == 0) v = small();
      memcpy(payload.data() + i, &v, kSizes[type]);
    }
    if (!row) {
      memcpy(p, payload.data(), bytes);
      return;
    }
    for (size_t i = 0; i < payload.size(); i += 4) {
      memcpy(p + 2 * i, payload.data() + i, 4);
      const uint32_t flag = 77;
      memcpy(p + 2 * i + 4, &flag, 4);
    }
  }
  uint64_t small() {
    const float f = static_cast<float>(static_cast<int64_t>(random() % 2001) - 1000) / 256;
    const double d = f;
    uint64_t v = 0;
    switch (type) {
      case kFloat32: memcpy(&v, &f, 4); return v;
      case kFloat64: memcpy(&v, &d, 8); return v;
      case kFloat16: return from_float<f16>(f).bits;
      case kBFloat16: return from_float<bf16>(f).bits;
      case kFloat8E4M3: return from_float<e4m3>(f).bits;
      case kFloat8E5M2: return from_float<e5m2>(f).bits;
      case kFloat8E4M3B15: return from_float<e4m3b15>(f / 4).bits;
      default: return random() % 20;
    }
  }
};

static void reductions(const std::string& ptx, const std::string& arch, const std::string& objects, const std::string& types) {
  for (uint32_t type = 0; type < kDataTypes; ++type) {
    if (!types.empty() && ("," + types + ",").find("," + std::string(kTypes[type]) + ",") == std::string::npos) continue;
    Reducer r;
    r.type = type;
    r.gpu = cuda::load(ptx + "/actor_reduce-" + kTypes[type] + "-" + arch + ".ptx", "mscclpp_actor_reduce");
    const std::string so = objects + "/reduce-" + kTypes[type] + ".so";
    void* lib = dlopen(so.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (lib == nullptr) {
      fprintf(stderr, "%s\n", dlerror());
      exit(1);
    }
    r.cpu = reinterpret_cast<decltype(r.cpu)>(dlsym(lib, "mscclpp_actor_reduce"));
    r.arena.resize(Reducer::kArena);
    r.device = cuda::memory(Reducer::kArena);
    for (uint32_t op = 0; op < kReduceOps; ++op) {
      for (uint32_t n : {1u, 2u, 3u, 5u, 9u}) {
        for (size_t count : {0ul, 1ul, 7ul, 67ul, 5000ul}) {
          for (uint32_t source = 0; source < 3; ++source) {
            r.one(op, n, count, 0, source, 2, 96);
            r.one(op, n, count, 1, source, 1, 32);
            r.one(op, n, count, 8, source, 3, 50);
          }
        }
      }
      r.one(op, 4, 5000, 0, actor::kPlain, 1, 1);
    }
  }
}

// --- steps

struct Rank {
  actor::Args args = {};
  WaitControl* control;
  Handle on = cuda::stream();
  uint32_t number = 0;

  Rank() {
    control = cuda::shared(WaitControl{});
    args.control = control;
    args.grid = reinterpret_cast<GridBarrier*>(cuda::memory(sizeof(GridBarrier)));
    args.done = cuda::shared<uint64_t>(static_cast<uint64_t>(0));
    args.failed = reinterpret_cast<uint32_t*>(cuda::memory(4));
    args.kernel = 5;
  }
  actor::Step* start(Handle kernel, unsigned grid, unsigned block, const std::vector<actor::Step>& steps) {
    args.steps = cuda::shared<actor::Step>(steps.size());
    memcpy(args.steps, steps.data(), steps.size() * sizeof(actor::Step));
    args.count = static_cast<uint32_t>(steps.size());
    *args.done = 0;
    cuda::launch(kernel, grid, block, on, args);
    return args.steps;
  }
  void finish() {
    cuda::wait(on);
    CHECK(*args.done == args.count, "%llu of %u steps were done", static_cast<unsigned long long>(*args.done), args.count);
  }
};

static actor::Step step(uint32_t op, uint64_t dst = 0, uint64_t src = 0, uint64_t bytes = 0, uint32_t flag = 0) {
  return actor::Step{op, 0, flag, 0, dst, src, bytes, 0};
}
static std::vector<unsigned char> noise(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<unsigned char> v(n);
  for (auto& b : v) b = static_cast<unsigned char>(random());
  return v;
}
static std::vector<unsigned char> read(Address p, size_t n) {
  std::vector<unsigned char> v(n);
  cuda::toHost(v.data(), p, n);
  return v;
}

static void copies(Handle kernel) {
  Rank r;
  for (size_t size : {0ul, 1ul, 3ul, 15ul, 16ul, 17ul, 31ul, 33ul, 64ul, 255ul, 4097ul, 300001ul}) {
    const auto data = noise(size + 32, size);
    const Address src = cuda::memory(size + 64), dst = cuda::memory(size + 128);
    cuda::toDevice(src, data.data(), size + 32);
    for (auto off : {std::pair<int, int>{0, 0}, {1, 0}, {0, 1}, {3, 5}, {16, 7}, {4, 8}, {2, 2}}) {
      for (auto shape : {std::pair<unsigned, unsigned>{1, 1}, {1, 32}, {2, 96}, {3, 50}}) {
        cuda::call("cuMemsetD8_v2", dst, static_cast<unsigned char>(0), size + 128);
        r.start(kernel, shape.first, shape.second, {step(actor::kCopy, dst + 32 + off.second, src + off.first, size)});
        r.finish();
        std::vector<unsigned char> want(size + 128);
        for (size_t i = 0; i < size; ++i) want[32 + off.second + i] = data[off.first + i];
        CHECK(read(dst, size + 128) == want, "copy of %zu bytes, off by %d and %d, %ux%u", size, off.first, off.second, shape.first, shape.second);
      }
    }
  }
}

static void exchange(Handle kernel) {
  const size_t half = 5003;
  Rank r[2];
  Address memory[2], packets[2], inbound[2];
  for (int i = 0; i < 2; ++i) {
    memory[i] = cuda::memory(4 * half);
    packets[i] = cuda::memory(2 * half + 64);
    inbound[i] = cuda::memory(8);
    const auto data = noise(half, i + 1);
    cuda::toDevice(memory[i], data.data(), half);
  }
  for (int i = 0; i < 2; ++i) {
    MemoryChannelHandle h = {};
    h.semaphore = SemaphoreHandle{reinterpret_cast<uint64_t*>(inbound[i]), reinterpret_cast<uint64_t*>(cuda::memory(8)),
                                  reinterpret_cast<uint64_t*>(inbound[1 - i]), r[i].control, static_cast<uint32_t>(1 - i), 3};
    h.dst = reinterpret_cast<void*>(memory[1 - i]);
    h.src = reinterpret_cast<void*>(memory[i]);
    h.packets = reinterpret_cast<void*>(packets[i]);
    MemoryChannelHandle p = h;  // the same, with the peer's packet buffer as target
    p.dst = reinterpret_cast<void*>(packets[1 - i]);
    MemoryChannelHandle* both = cuda::shared<MemoryChannelHandle>(static_cast<size_t>(2));
    both[0] = h;
    both[1] = p;
    r[i].args.memory = both;
  }
  for (int round = 0; round < 3; ++round) {
    const uint32_t flag = 10 + 2 * round;
    for (int i = 0; i < 2; ++i) {
      std::vector<actor::Step> s = {
          step(actor::kPut, half, 0, half), step(actor::kSignal), step(actor::kWait), step(actor::kGet, 2 * half, 0, half),
          step(actor::kPutLL8, 0, 0, half, flag), step(actor::kUnpackLL8, 3 * half, 0, half - 3, flag),
          step(actor::kRelaxedSignal), step(actor::kRelaxedWait),
          step(actor::kPutLL16, 0, 1, half - 9, flag + 1), step(actor::kUnpackLL16, 3 * half, 0, half - 9, flag + 1), step(actor::kPoll)};
      s[4].channel = s[8].channel = 1;
      r[i].start(kernel, i + 1, 64 + 32 * i, s);
    }
    for (auto& x : r) x.finish();
    for (int i = 0; i < 2; ++i) {
      const auto own = read(memory[i], 4 * half), theirs = noise(half, 2 - i);
      CHECK(memcmp(own.data() + half, theirs.data(), half) == 0, "put");
      CHECK(memcmp(own.data() + 2 * half, theirs.data(), half) == 0, "get");
      CHECK(memcmp(own.data() + 3 * half, theirs.data() + 1, half - 9) == 0, "LL16");
      CHECK(memcmp(own.data() + 4 * half - 9, theirs.data() + half - 9, 6) == 0, "LL8");
      CHECK(r[i].args.steps[10].result == 0, "poll found a signal that nobody sent");
    }
  }
}

struct HostRing {
  FifoHandle handle;
  uint64_t taken = 0;
  HostRing(Rank& r, uint32_t slots) {
    uint32_t shift = 0;
    while (1u << shift < slots) ++shift;
    handle = FifoHandle{cuda::shared<Trigger>(slots), reinterpret_cast<uint64_t*>(cuda::memory(8)), cuda::shared<uint64_t>(static_cast<uint64_t>(0)),
                        reinterpret_cast<uint64_t*>(cuda::memory(8)), cuda::shared<uint32_t>(0u), nullptr, r.control, slots - 1, shift};
  }
  Trigger take() {
    Trigger* slot = handle.triggers + (taken & handle.mask);
    const uint64_t parity = (taken >> handle.shift & 1) != 0 ? 0 : 1ull << 63;
    const auto start = std::chrono::steady_clock::now();
    while ((__atomic_load_n(&slot->snd, __ATOMIC_ACQUIRE) & 1ull << 63) != parity) {
      if (std::chrono::steady_clock::now() - start > std::chrono::seconds(5)) {
        printf("no trigger within 5 s\n");
        exit(1);
      }
    }
    Trigger t = {__atomic_load_n(&slot->fst, __ATOMIC_RELAXED), slot->snd & ~(1ull << 63)};
    __atomic_store_n(handle.tail, ++taken, __ATOMIC_RELEASE);
    return t;
  }
};

static void rings(Handle kernel) {
  Rank r;
  HostRing ring(r, 8);
  r.args.rings = cuda::shared(ring.handle);
  std::vector<actor::Step> steps;
  for (uint64_t i = 0; i < 200; ++i) steps.push_back(step(actor::kPush, i << 3, ~i));
  steps.push_back(step(actor::kSync, 0, 0, 199));
  r.start(kernel, 2, 64, steps);
  for (uint64_t i = 0; i < 200; ++i) {
    const Trigger t = ring.take();
    CHECK(t.fst == i << 3 && t.snd == (~i & ~(1ull << 63)), "trigger %llu", static_cast<unsigned long long>(i));
  }
  r.finish();

  PortChannelHandle port = {};
  const Address inbound = cuda::memory(8);
  port.semaphore = SemaphoreHandle{reinterpret_cast<uint64_t*>(inbound), reinterpret_cast<uint64_t*>(cuda::memory(8)), nullptr, r.control, 1, 2};
  port.fifo = ring.handle;
  port.flush_done = cuda::shared<uint64_t>(static_cast<uint64_t>(0));
  port.dst_memory = 0x155;
  port.src_memory = 0xaa;
  port.semaphore_slot = 0x3cc;
  r.args.port = cuda::shared(port);
  r.start(kernel, 1, 32, {step(actor::kPortPut, 0x89abcdef, 0x12345678, 0xfedcba98), step(actor::kPortSignal), step(actor::kPortFlush),
                          step(actor::kPortWait), step(actor::kPortPutWithSignalAndFlush, 1, 2, 3)});
  const Trigger put = ring.take();
  CHECK(put.fst == (0xfedcba98ull | 0x12345678ull << 32), "put: fst %llx", static_cast<unsigned long long>(put.fst));
  CHECK(put.snd == (0x89abcdefull | 0xaaull << 32 | 0x155ull << 41 | 1ull << 50 | 0x3ccull << 53), "put: snd %llx", static_cast<unsigned long long>(put.snd));
  CHECK(mscclpp_trigger_kind(ring.take().snd) == kTriggerSignal, "signal");
  CHECK(mscclpp_trigger_kind(ring.take().snd) == kTriggerFlush, "flush");
  __atomic_store_n(port.flush_done, ring.taken, __ATOMIC_RELEASE);
  const uint64_t raised = 1;
  Handle other = cuda::stream();
  cuda::call("cuMemcpyHtoDAsync_v2", inbound, static_cast<const void*>(&raised), static_cast<size_t>(8), other);
  CHECK(mscclpp_trigger_kind(ring.take().snd) == 7, "put, signal and flush");
  __atomic_store_n(port.flush_done, ring.taken, __ATOMIC_RELEASE);
  r.finish();
}

static void aborts(Handle kernel) {
  for (int way = 0; way < 2; ++way) {
    Rank r;
    MemoryChannelHandle h = {};
    h.semaphore = SemaphoreHandle{reinterpret_cast<uint64_t*>(cuda::memory(8)), reinterpret_cast<uint64_t*>(cuda::memory(8)), nullptr, r.control, 4, 9};
    r.args.memory = cuda::shared(h);
    if (way == 1) r.control->deadline = 3000000;
    const auto start = std::chrono::steady_clock::now();
    r.start(kernel, 2, 64, {step(actor::kWait)});
    if (way == 0) __atomic_store_n(&r.control->abort, 1u, __ATOMIC_RELEASE);
    cuda::wait(r.on);
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    printf("%s: the kernel left after %.2f ms\n", way == 0 ? "abort" : "deadline of 3 ms", ms);
    CHECK(*r.args.done == 0, "the wait was not left");
    CHECK(r.control->reported == 1 && r.control->channel == 9 && r.control->peer == 4 && r.control->expected == 1 && r.control->kernel == 5,
          "report: %u, channel %u, peer %u", r.control->reported, r.control->channel, r.control->peer);
    CHECK(ms < 1000, "it took %.1f ms", ms);
  }
}

static void windows(Handle kernel) {
  const uint32_t ranks = 3, count = 1001;
  const uint64_t stride = 8192, flag = 8128;
  const Address memory = cuda::memory(ranks * stride);
  Rank r[ranks];
  Address outs[ranks];
  for (uint32_t k = 0; k < ranks; ++k) {
    std::vector<float> values(count);
    for (uint32_t i = 0; i < count; ++i) values[i] = static_cast<float>((k + 1) * i);
    cuda::toDevice(memory + k * stride, values.data(), count * 4);
    outs[k] = cuda::memory(count * 4);
    r[k].args.switches = cuda::shared(SwitchChannelHandle{reinterpret_cast<void*>(memory + k * stride), reinterpret_cast<void*>(memory), stride, stride, flag,
                                             reinterpret_cast<uint64_t*>(cuda::memory(8)), r[k].control, k, ranks});
    const Address note = cuda::memory(8);
    const uint64_t value = 100 + k;
    cuda::toDevice(note, &value, 8);
    r[k].start(kernel, 1 + k, 64, {step(actor::kSwitchSignal), step(actor::kSwitchWait), step(actor::kSwitchReduce, outs[k], 0, count * 4),
                                   step(actor::kSwitchBroadcast, 4096 + 8 * k, note, 8), step(actor::kSwitchSignal), step(actor::kSwitchWait)});
  }
  for (auto& x : r) x.finish();
  for (uint32_t k = 0; k < ranks; ++k) {
    std::vector<float> got(count);
    cuda::toHost(got.data(), outs[k], count * 4);
    for (uint32_t i = 0; i < count; ++i) CHECK(got[i] == static_cast<float>(6 * i), "rank %u element %u: %g", k, i, static_cast<double>(got[i]));
    uint64_t notes[ranks];
    cuda::toHost(notes, memory + k * stride + 4096, sizeof notes);
    for (uint32_t i = 0; i < ranks; ++i) CHECK(notes[i] == 100 + i, "rank %u has %llu of rank %u", k, static_cast<unsigned long long>(notes[i]), i);
  }
}

int main(int argc, char** argv) {
  if (argc < 4 || argc > 6) {
    fprintf(stderr, "%s: expected the folder of PTX files, the architecture, the folder of shared objects, and perhaps types to reduce: f16,e4m3, and that nothing else is tested: reductions\n", argv[0]);
    return 2;
  }
  setvbuf(stdout, nullptr, _IONBF, 0);
  cuda::open();
  const Handle kernel = cuda::load(std::string(argv[1]) + "/actor-" + argv[2] + ".ptx", "mscclpp_actor");
  if (argc < 6) {
    copies(kernel);
    exchange(kernel);
    rings(kernel);
    aborts(kernel);
    windows(kernel);
  }
  reductions(argv[1], argv[2], argv[3], argc >= 5 ? argv[4] : "");
  printf("%d checks, %d failed, %d functions with local memory\n", checks, failures, cuda::spilled());
  return failures == 0 && cuda::spilled() == 0 ? 0 : 1;
}
