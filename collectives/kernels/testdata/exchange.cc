// The exchange between hosts in the checking emulator: ranks of several hosts, launched
// with different grids, whose proxies take their time; calls one after another as in a
// stream, that write what the one before has read.
#define MSCCLPP_TYPE 6
#include <mscclpp/check.h>

#include <deque>

#include "../exchange_family.h"

using namespace mscclpp;
using namespace mscclpp::collectives;

namespace {

constexpr uint64_t kSlot = 512;
constexpr uint64_t kRoom = kSlot - sizeof(ExchangeHead);
constexpr uint32_t kCalls = 5;
constexpr char kUntouched = 0x5a;  // in an output to which no host gives anything

struct Config {
  uint32_t hosts;
  uint32_t grid[3], block[3];  // of host h
};
constexpr Config kTwo = {2, {2, 1, 0}, {3, 4, 0}};
constexpr Config kThree = {3, {1, 3, 2}, {2, 1, 4}};

// The hosts that give and get something in calls: all, or one host alone, another one in each.
enum Roles { kAll, kOneGives, kOneGets, kOneToOne };
void choose(ExchangeArgs& a, Roles roles, uint32_t call) {
  if (roles == kOneGives || roles == kOneToOne) a.giver = 1 + call % a.hosts;
  if (roles == kOneGets || roles == kOneToOne) a.taker = 1 + (call + (roles == kOneToOne ? 1 + call / a.hosts : 0)) % a.hosts;
}

// The bytes that a host has for another in a call.
char letter(uint32_t from, uint32_t to, uint32_t call, uint64_t i) { return static_cast<char>(from * 61 + to * 17 + call * 5 + i * 3 + 1); }

// One rank: calls, with what is before and behind each of them on the stream.
struct Rank {
  std::vector<ExchangeArgs> calls;
  char* input;
  bool apart;
  GridBarrier* stream;
  uint64_t* wrong;
};

void fill(const Rank& r, const ExchangeArgs& a, uint32_t call) {
  for (uint64_t i = global_thread(); i < a.bytes; i += global_threads()) {
    for (uint32_t to = 0; to < (r.apart ? a.hosts : 1); ++to) r.input[to * a.input_stride + i] = letter(a.host, to, call, i);
    for (uint32_t from = 0; from < a.hosts; ++from) static_cast<char*>(a.output)[from * a.stride + i] = kUntouched;
  }
}

void check_output(const Rank& r, const ExchangeArgs& a, uint32_t call) {
  uint64_t wrong = 0;
  for (uint64_t i = global_thread(); i < a.bytes; i += global_threads()) {
    for (uint32_t from = 0; from < a.hosts; ++from) {
      const bool gives = from != a.host && (a.giver == 0 || a.giver == from + 1) && (a.taker == 0 || a.taker == a.host + 1);
      wrong += static_cast<char*>(a.output)[from * a.stride + i] != (gives ? letter(from, r.apart ? a.host : 0, call, i) : kUntouched);
    }
  }
  if (wrong != 0) fetch_add_relaxed_device(r.wrong, wrong);
}

void stream(const Rank* r, const LaunchShape* shape) {
  for (uint32_t k = 0; k < r->calls.size(); ++k) {
    const ExchangeArgs& a = r->calls[k];
    fill(*r, a, k);
    if (!grid_sync(r->stream, a.control)) return;
    mscclpp_steps_exchange(&a, shape);
    if (!grid_sync(r->stream, a.control)) return;
    check_output(*r, a, k);
    if (!grid_sync(r->stream, a.control)) return;
  }
}

// World is the memory of all ranks, and their proxies.
struct World {
  check::Job& job;
  const Config c;
  std::vector<ExchangeArgs> args;
  std::vector<check::Ring> rings;
  std::vector<uint64_t*> counters;  // of host h, from host g: h * hosts + g
  std::vector<std::deque<Trigger>> pending;
  std::vector<ExchangeArgs> calls;  // of host 0, by call: what has to cross the network
  std::vector<uint64_t> crossed;    // by host: bytes it sent, without heads

  World(check::Job& job, const Config& c) : job(job), c(c), pending(c.hosts), crossed(c.hosts) {
    for (uint32_t i = 0; i < c.hosts * c.hosts; ++i) counters.push_back(job.alloc<uint64_t>(1));
    for (uint32_t h = 0; h < c.hosts; ++h) {
      rings.push_back(job.ring(h, 4));
      PortChannelHandle* ports = job.alloc<PortChannelHandle>(c.hosts);
      for (uint32_t g = 0; g < c.hosts; ++g) {
        ports[g].semaphore = SemaphoreHandle{counters[h * c.hosts + g], job.alloc<uint64_t>(1), nullptr, job.control(h), g, g + 1};
        ports[g].fifo = rings[h].handle;
        ports[g].dst_memory = ports[g].semaphore_slot = g;
      }
      ExchangeArgs a = {};
      a.control = job.control(h);
      a.state = job.alloc<ExchangeState>(1);
      a.note = job.alloc<ExchangeNote>(1);
      a.ports = ports;
      a.slots = job.alloc<char>(4 * c.hosts * kSlot);
      a.slot = kSlot;
      a.host = h;
      a.hosts = c.hosts;
      a.signature.collective = 1;
      a.signature.algorithm = 0x123456;
      args.push_back(a);
    }
  }

  // proxy does what one rank has asked for, in order, and no sooner than it likes.
  void proxy(uint32_t h) {
    job.beside(h, [this, h] {
      Trigger t;
      bool did = rings[h].take(t);
      if (did) pending[h].push_back(t);
      if (pending[h].empty() || (did && job.random(2) == 0)) return did;
      t = pending[h].front();
      pending[h].pop_front();
      const uint64_t bytes = mscclpp_trigger_bytes(t.fst), src = mscclpp_trigger_from(t.fst), dst = mscclpp_trigger_to(t.snd);
      const uint32_t to = mscclpp_trigger_dst(t.snd), type = mscclpp_trigger_kind(t.snd), semaphore = mscclpp_trigger_slot(t.snd);
      job.expect(type == (kTriggerData | kTriggerSignal) && to < c.hosts && to != h && semaphore == to, "host %u: trigger of type %u for %u", h, type, to);
      job.expect(src + bytes <= 2 * c.hosts * kSlot && dst >= 2 * c.hosts * kSlot && dst + bytes <= 4 * c.hosts * kSlot,
                 "host %u: %llu bytes from %llu to %llu", h, (unsigned long long)bytes, (unsigned long long)src, (unsigned long long)dst);
      if (!calls.empty()) {
        const ExchangeArgs& a = calls[(reinterpret_cast<const ExchangeHead*>(args[h].slots + src)->sequence - 1) % kCalls];
        const bool gives = (a.giver == 0 || a.giver == h + 1) && (a.taker == 0 || a.taker == to + 1);
        job.expect(bytes == sizeof(ExchangeHead) + (gives ? a.bytes : 0), "host %u: %llu bytes for %u in one of %llu", h, (unsigned long long)bytes, to,
                   (unsigned long long)a.bytes);
        crossed[h] += bytes - sizeof(ExchangeHead);
      }
      memcpy(args[to].slots + dst, args[h].slots + src, bytes);
      add_release(counters[to * c.hosts + h], static_cast<uint64_t>(1));
      return true;
    });
  }
};

// All calls, of sizes that grow and shrink, twice: a replay goes on where the first ended.
void results(check::Job& job, const Config& c, bool apart, Roles roles = kAll) {
  constexpr uint64_t sizes[kCalls] = {kRoom, 0, 1, 37, kRoom - 5};
  World w(job, c);
  std::vector<Rank> ranks(c.hosts);
  for (uint32_t h = 0; h < c.hosts; ++h) {
    Rank& r = ranks[h];
    r = Rank{{}, job.alloc<char>(c.hosts * kRoom), apart, job.alloc<GridBarrier>(1), job.alloc<uint64_t>(1)};
    for (uint64_t bytes : sizes) {
      ExchangeArgs a = w.args[h];
      a.input = r.input;
      a.input_stride = apart ? kRoom : 0;
      a.output = job.alloc<char>(c.hosts * kRoom);
      a.stride = kRoom;
      a.bytes = a.signature.count = bytes;
      choose(a, roles, r.calls.size());
      r.calls.push_back(a);
    }
  }
  w.calls = ranks[0].calls;
  for (uint32_t again = 1; again <= 2; ++again) {
    for (uint32_t h = 0; h < c.hosts; ++h) {
      w.proxy(h);
      job.launch(h, c.grid[h], c.block[h], stream, ranks[h]);
    }
    job.run();
    for (uint32_t h = 0; h < c.hosts; ++h) {
      job.expect(*ranks[h].wrong == 0, "host %u: %llu wrong bytes", h, (unsigned long long)*ranks[h].wrong);
      const uint64_t all = again * kCalls;
      job.expect(w.args[h].state->turn == all && w.args[h].note->begun == all && w.args[h].note->ended == all, "host %u: %llu exchanges, expected %llu", h,
                 (unsigned long long)w.args[h].state->turn, (unsigned long long)all);
      job.expect(w.args[h].note->found == 0, "host %u found a disagreement", h);
      job.expect(w.crossed[h] > 0, "host %u sent nothing but heads", h);
    }
  }
}

// A rank that finds another head notes it for the host, and waits until the host ends the job.
void disagreement(check::Job& job) {
  World w(job, kTwo);
  std::vector<Rank> ranks(2);
  for (uint32_t h = 0; h < 2; ++h) {
    ExchangeArgs a = w.args[h];
    a.bytes = a.signature.count = 8 + h;
    a.input = job.alloc<char>(kRoom);
    a.output = job.alloc<char>(2 * kRoom);
    a.stride = kRoom;
    ranks[h] = Rank{{a}, const_cast<char*>(static_cast<const char*>(a.input)), false, job.alloc<GridBarrier>(1), job.alloc<uint64_t>(1)};
    w.proxy(h);
    job.launch(h, kTwo.grid[h], kTwo.block[h], stream, ranks[h]);
  }
  job.beside(0, [&] { // the host
    if (load_relaxed(&job.control(0)->abort) != 0 || load_acquire(&w.args[0].note->found) != 1 || load_acquire(&w.args[1].note->found) != 1) return false;
    for (uint32_t h = 0; h < 2; ++h) store_relaxed(&job.control(h)->abort, 1u);
    return true;
  });
  job.run();
  for (uint32_t h = 0; h < 2; ++h) {
    const ExchangeNote* n = w.args[h].note;
    job.expect(n->host == 1 - h && n->theirs[1] == 9 - h && n->ours[1] == 8 + h && n->theirs[0] == 1 && n->theirs[2] == n->ours[2] && n->theirs[3] == 9 - h,
               "host %u noted host %u with count %llu", h, n->host, (unsigned long long)n->theirs[1]);
    job.expect(w.args[h].state->turn == 0, "host %u has gone on", h);
  }
}

// One stream of a rank, of whose failure the host does not know yet: two calls, one behind the
// other, whatever has become of the first. Flags say when it may begin and that it has ended.
struct Careless {
  ExchangeArgs calls[2];
  char* input;
  const uint32_t* begin;
  uint32_t* ended;
};

void careless(const Careless* c, const LaunchShape* shape) {
  if (c->begin != nullptr) {
    const uint32_t* word = c->begin;
    if (!wait_until(nullptr, WaitSite{0, 0, 0, 1}, [word] { return load_acquire(word) == 1; })) return;
  }
  for (uint32_t k = 0; k < 2; ++k) {
    const ExchangeArgs& a = c->calls[k];
    if (a.hosts == 0) continue;
    for (uint64_t i = 0; i < a.bytes; ++i) c->input[i] = letter(a.host, 0, k, i);
    mscclpp_steps_exchange(&a, shape);
  }
  if (c->ended != nullptr) store_release(c->ended, 1u);
}

// A rank leaves an exchange that another one is late for, and has the next call behind it on
// the stream. The others get the data that it has sent for the first, now or later.
void left(check::Job& job) {
  World w(job, Config{3, {1, 1, 1}, {1, 1, 1}});
  uint32_t* over = job.alloc<uint32_t>(1);
  char* outputs[3];
  for (uint32_t h = 0; h < 3; ++h) {
    Careless c = {{w.args[h], w.args[h]}, job.alloc<char>(kRoom), h == 2 ? over : nullptr, h == 0 ? over : nullptr};
    for (ExchangeArgs& a : c.calls) {
      a.input = c.input;
      a.output = job.alloc<char>(3 * kRoom);
      a.stride = kRoom;
      a.bytes = a.signature.count = 64;
    }
    outputs[h] = static_cast<char*>(c.calls[0].output);
    if (h != 0) c.calls[1].hosts = 0;
    w.proxy(h);
    job.launch(h, 1, 1, careless, c);
  }
  job.beside(0, [&] { // the data of host 0 for the others is there
    if (load_relaxed(&job.control(0)->abort) != 0 || load_acquire(w.counters[1 * 3 + 0]) == 0 || load_acquire(w.counters[2 * 3 + 0]) == 0) return false;
    store_relaxed(&job.control(0)->abort, 1u);
    return true;
  });
  job.run();
  for (uint32_t h = 1; h < 3; ++h) {
    uint32_t wrong = 0;
    for (uint32_t from = 0; from < 3; ++from) {
      for (uint64_t i = 0; i < 64 && from != h; ++i) wrong += outputs[h][from * kRoom + i] != letter(from, 0, 0, i);
    }
    job.expect(wrong == 0, "host %u: %u wrong bytes, from a call behind one that was left", h, wrong);
  }
  job.expect(w.rings[0].taken == 2 && w.args[0].state->turn == 0, "host 0 has sent %llu messages", (unsigned long long)w.rings[0].taken);
}

// An earlier kernel of the stream has left a wait: what the exchange would send is worth
// nothing, and nobody gets it, also where that was a kernel of the ranks of the host.
void behind(check::Job& job) {
  for (uint32_t which = 0; which < 2; ++which) {
    World w(job, kTwo);
    WaitControl* inside = job.alloc<WaitControl>(1);
    (which == 0 ? job.control(0) : inside)->reported = 1;
    ExchangeArgs a = w.args[0];
    a.inside = inside;
    a.bytes = a.signature.count = 64;
    a.input = job.alloc<char>(kRoom);
    a.output = job.alloc<char>(2 * kRoom);
    a.stride = kRoom;
    w.proxy(0);
    job.launch(0, 3, 2, mscclpp_steps_exchange, a);
    job.run();
    job.expect(w.rings[0].taken == 0, "%llu messages behind a wait that was left", (unsigned long long)w.rings[0].taken);
    job.control(0)->reported = 0;
  }
}

}  // namespace

MSCCLPP_CHECK_MAIN({"two", [](check::Job& job) { results(job, kTwo, false); }}, {"two_apart", [](check::Job& job) { results(job, kTwo, true); }},
                   {"three", [](check::Job& job) { results(job, kThree, false); }}, {"three_apart", [](check::Job& job) { results(job, kThree, true); }},
                   {"three_one_gives", [](check::Job& job) { results(job, kThree, false, kOneGives); }},
                   {"three_one_gives_apart", [](check::Job& job) { results(job, kThree, true, kOneGives); }},
                   {"three_one_gets", [](check::Job& job) { results(job, kThree, false, kOneGets); }},
                   {"three_one_gets_apart", [](check::Job& job) { results(job, kThree, true, kOneGets); }},
                   {"three_one_to_one", [](check::Job& job) { results(job, kThree, false, kOneToOne); }},
                   {"disagreement", disagreement}, {"left", left}, {"behind", behind})
