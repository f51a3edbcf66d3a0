// Messages through pipes of lines in the checking emulator: ranks whose blocks send or
// receive beside ranks whose blocks do both, messages of any length and alignment, to
// several peers and to the rank itself, calls one after another as in a stream.
#define MSCCLPP_TYPE 6
#include <mscclpp/check.h>

#include "../move_family.h"

using namespace mscclpp;
using namespace mscclpp::collectives;

namespace {

constexpr uint32_t kCalls = 4;
constexpr uint64_t kNever = ~uint64_t(0);

struct Config {
  uint32_t ranks, lanes, slots, groups;
  uint32_t grid[4], block[4];  // of rank r % 4
  uint64_t position;           // where pipes begin
};
constexpr Config kMixed = {3, 2, 2, 2, {1, 4, 3, 2}, {1, 4, 3, 5}, 0};
constexpr Config kSplit = {2, 3, 4, 1, {6, 7, 6, 7}, {6, 4, 6, 4}, 0};
constexpr Config kWide = {2, 1, 4, 1, {1, 2, 1, 2}, {64, 2, 64, 2}, 0};  // rank 0 moves two chunks at once
constexpr Config kWrap = {2, 2, 2, 2, {4, 1, 4, 1}, {4, 6, 4, 6}, 3 * kRewriteEvery - 1};
constexpr Config kWarps = {2, 2, 4, 1, {4, 2, 4, 2}, {64, 80, 64, 80}, 0};
constexpr Config kEight = {8, 2, 2, 2, {4, 2, 3, 1}, {4, 3, 6, 5}, 0};
constexpr Config kOneBlockALane = {2, 3, 2, 2, {3, 3, 3, 3}, {4, 6, 4, 6}, 0};
constexpr Config kRewrite = {2, 2, 2, 4, {4, 4, 4, 4}, {6, 6, 6, 6}, 3 * kRewriteEvery};

template <class A>
struct Sequence {
  using Kernel = void (*)(const A*, const LaunchShape*);
  Kernel kernel;
  std::vector<A> calls;
  GridBarrier* stream;
  Kernel last = nullptr;  // not null: the kernel of the last call
};

template <class A>
void sequence(const Sequence<A>* s, const LaunchShape* shape) {
  for (const A& call : s->calls) {
    const bool other = s->last != nullptr && &call == &s->calls.back();
    (other ? s->last : s->kernel)(&call, shape);
    if (!grid_sync(s->stream, head(call).control)) return;
  }
}

Common& head_of(TransferArgs& a) { return a.common; }
LLTransferArgs& head_of(LLTransferArgs& a) { return a; }

// World is the memory of all ranks. Messages of at least long_bytes are long, and so many bytes of them have room
// beside each chunk, in slots of pipes that two lanes share.
struct World {
  check::Job& job;
  const Config c;
  const uint64_t area, slot, long_bytes;
  const uint32_t beside;
  const uint32_t shared = (c.lanes + 1) / 2;  // lanes of pipes
  std::vector<char*> scratch;
  std::vector<State*> states;

  World(check::Job& job, const Config& c, uint64_t long_bytes, uint32_t beside = 0)
      : job(job), c(c), area(c.lanes * c.ranks * sizeof(Mailbox)), slot(uint64_t(c.groups) * kGroupUnits * kLineUnitBytes), long_bytes(long_bytes), beside(beside) {
    for (uint32_t r = 0; r < c.ranks; ++r) {
      scratch.push_back(job.alloc<char>(pipes() + shared * (c.ranks - 1) * kPipeSlots * pipe_slot()));
      states.push_back(job.alloc<State>(1));
    }
    for (uint32_t r = 0; r < c.ranks && c.position != 0; ++r) {
      for (uint32_t lane = 0; lane < c.lanes; ++lane) {
        for (uint32_t p = 0; p < c.ranks; ++p) {
          states[r]->lanes[lane].line_sent[p] = states[r]->lanes[lane].line_received[p] = c.position;
          reinterpret_cast<Mailbox*>(scratch[r])[lane * c.ranks + p].line_tail = c.position;
        }
      }
    }
  }

  template <class H>
  void describe(H& h, uint32_t rank) {
    h.control = job.control(rank);
    h.state = states[rank];
    h.notes = states[rank];
    h.rank = rank;
    h.ranks = c.ranks;
    for (uint32_t r = 0; r < c.ranks; ++r) h.scratch[r] = reinterpret_cast<uint64_t>(scratch[r]);
  }
  static constexpr uint32_t kPipeSlots = 2;
  uint64_t pipes() const { return area + c.lanes * c.ranks * c.slots * slot; }
  uint64_t pipe_slot() const { return c.slots * beside; }  // of which two hold what lies beside two lanes
  LinePipes lines() const { return LinePipes{area, c.lanes, c.lanes, c.slots, c.groups}; }
  TransferArgs args(TransferArgs*, uint32_t rank) {
    TransferArgs a;
    memset(static_cast<void*>(&a), 0, sizeof(a));
    describe(a.common, rank);
    a.lines = lines();
    a.long_bytes = long_bytes;
    a.beside = beside;
    a.beside_slots = c.slots > 2 ? c.slots / 2 : 2;
    a.common.lanes = shared;
    a.common.pipes = pipes();
    a.common.pipe_slot = pipe_slot();
    a.common.pipe_slots = kPipeSlots;
    return a;
  }
  LLTransferArgs args(LLTransferArgs*, uint32_t rank) {
    LLTransferArgs a;
    memset(static_cast<void*>(&a), 0, sizeof(a));
    describe(a, rank);
    a.release = rank % 2;
    a.lines = lines();
    return a;
  }
};

char value(uint32_t from, uint32_t to, uint32_t call, uint32_t number, uint64_t i) {
  return static_cast<char>(from * 61 + to * 23 + call * 7 + number * 101 + i * 3 + (i >> 8) + 1);
}

using Sizes = uint64_t (*)(uint32_t from, uint32_t to, uint32_t call, uint32_t number);

// Every rank sends each, itself included, `each` messages a call. Buffers are off by
// anything, and what lies behind them must stay.
template <class A>
void exchange(check::Job& job, const Config& c, void (*kernel)(const A*, const LaunchShape*), uint32_t each, Sizes size, uint64_t long_bytes = kNever, uint32_t beside = 0) {
  World w(job, c, long_bytes, beside);
  std::vector<Sequence<A>> s(c.ranks);
  std::vector<std::vector<Transfer>> in(c.ranks);
  for (uint32_t r = 0; r < c.ranks; ++r) {
    s[r].kernel = kernel;
    s[r].stream = job.alloc<GridBarrier>(1);
    for (uint32_t k = 0; k < kCalls; ++k) {
      A a = w.args(static_cast<A*>(nullptr), r);
      for (uint32_t receive = 0; receive < 2; ++receive) {
        for (uint32_t p = 0; p < c.ranks; ++p) {
          for (uint32_t i = 0; i < each; ++i) {
            const uint64_t bytes = receive ? size(p, r, k, i) : size(r, p, k, i);
            const uint32_t shift = (k * 5 + i * 3 + p * 8) % 17;  // 0, 4, 8 and 16 among others
            char* data = job.alloc<char>(shift + bytes + 1) + shift;
            data[bytes] = 0x55;
            for (uint64_t b = 0; b < bytes && !receive; ++b) data[b] = value(r, p, k, i, b);
            // Every other one is where its sender can store it.
            if constexpr (sizeof(A) == sizeof(TransferArgs)) a.theirs[a.transfers] = i % 2 == 0 ? reinterpret_cast<uint64_t>(data) : 0;
            a.list[a.transfers++] = Transfer{data, bytes, p, receive};
            if (receive) in[r].push_back(a.list[a.transfers - 1]);
          }
        }
      }
      s[r].calls.push_back(a);
    }
  }
  for (uint32_t r = 0; r < c.ranks; ++r) job.launch(r, c.grid[r % 4], c.block[r % 4], sequence<A>, s[r]);
  job.run();
  for (uint32_t r = 0; r < c.ranks; ++r) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < kCalls; ++k) {
      for (uint32_t p = 0; p < c.ranks; ++p) {
        for (uint32_t i = 0; i < each; ++i) {
          const Transfer& x = in[r][n++];
          const char* data = static_cast<const char*>(x.buffer);
          for (uint64_t b = 0; b < x.bytes; ++b) {
            job.expect(data[b] == value(p, r, k, i, b), "rank %u, call %u, message %u from %u, byte %llu of %llu: %d, expected %d", r, k, i, p,
                       (unsigned long long)b, (unsigned long long)x.bytes, data[b], value(p, r, k, i, b));
          }
          job.expect(data[x.bytes] == 0x55, "rank %u, call %u, message %u from %u: written beyond its %llu bytes", r, k, i, p, (unsigned long long)x.bytes);
        }
      }
    }
  }
}

// Ends of pieces, rows, groups and chunks, and more than the pipes hold.
uint64_t odd_sizes(uint32_t from, uint32_t to, uint32_t call, uint32_t number) {
  constexpr uint64_t sizes[] = {0, 1, 15, 16, 17, 431, 432, 433, 1776, 1777, 1791, 1792, 1903, 1904, 1905, 3824, 3825, 7001, 20011};
  return sizes[(from * 5 + to * 3 + call * 7 + number * 11) % (sizeof(sizes) / sizeof(sizes[0]))];
}

// Calls of small messages only, then one of messages that fill slots.
uint64_t growing_sizes(uint32_t, uint32_t, uint32_t call, uint32_t) { return call + 1 < kCalls ? 3 : 8000; }

// The next message is as long as the last.
uint64_t same_sizes(uint32_t, uint32_t, uint32_t, uint32_t) { return 1500; }

// Three chunks a lane, of which each leaves a fourth of its slot free.
uint64_t three_chunks(uint32_t, uint32_t, uint32_t, uint32_t) { return 31200; }

// Where the positions of chunks come to a multiple of 2^30: lines that were not
// written since flags were the same last would be taken for those of the last call.
// Two ranks send to each other alone.
void wrap(check::Job& job, const Config& c, Sizes size) {
  World w(job, c, kNever);
  // One message a call: the last one has position + kCalls - 1 on lane 0.
  const uint64_t last = c.position + kCalls - 1;
  const uint32_t flag = LinePipe<TransferArgs>::flag_at(last);
  for (uint32_t r = 0; r < c.ranks && size == growing_sizes; ++r) {
    for (uint32_t p = 0; p < c.ranks; ++p) {
      char* slot = w.scratch[r] + w.area + (p * c.slots + last % c.slots) * w.slot;
      for (uint32_t u = 0; u < c.groups * kGroupUnits; ++u) writeLineUnit(slot, u, Vec16{0xdead, 0xdead, 0xdead, 0xdead}, flag);
    }
  }
  std::vector<Sequence<TransferArgs>> s(c.ranks);
  char* in[2][kCalls];
  for (uint32_t r = 0; r < c.ranks; ++r) {
    s[r].kernel = mscclpp_transfers_ll128;
    s[r].stream = job.alloc<GridBarrier>(1);
    for (uint32_t k = 0; k < kCalls; ++k) {
      TransferArgs a = w.args(static_cast<TransferArgs*>(nullptr), r);
      const uint64_t bytes = size(r, 1 - r, k, 0);
      char* out = job.alloc<char>(bytes);
      for (uint64_t b = 0; b < bytes; ++b) out[b] = value(r, 1 - r, k, 0, b);
      in[r][k] = job.alloc<char>(bytes);
      a.list[a.transfers++] = Transfer{out, bytes, 1 - r, 0};
      a.list[a.transfers++] = Transfer{in[r][k], bytes, 1 - r, 1};
      s[r].calls.push_back(a);
    }
  }
  for (uint32_t r = 0; r < c.ranks; ++r) job.launch(r, c.grid[r], c.block[r], sequence<TransferArgs>, s[r]);
  job.run();
  for (uint32_t r = 0; r < c.ranks; ++r) {
    for (uint32_t k = 0; k < kCalls; ++k) {
      for (uint64_t b = 0; b < size(1 - r, r, k, 0); ++b) {
        job.expect(in[r][k][b] == value(1 - r, r, k, 0, b), "rank %u, call %u, byte %llu is old", r, k, (unsigned long long)b);
      }
    }
  }
}

// A group that the arguments of one launch have no room for, of some long messages.
void many(check::Job& job) {
  const Config& c = kMixed;
  constexpr uint32_t kEach = 30;
  World w(job, c, 1000, 320);
  const uint32_t all = 2 * c.ranks * kEach;
  std::vector<Sequence<TransferArgs>> s(c.ranks);
  std::vector<Transfer> in[3];
  const auto size = [](uint32_t from, uint32_t to, uint32_t i) { return uint64_t(i % 7 == 3 ? 0 : i % 11 == 5 ? 2500 : (from + to + i) % 5 + 1); };
  for (uint32_t r = 0; r < c.ranks; ++r) {
    s[r].kernel = mscclpp_transfers_ll128;
    s[r].stream = job.alloc<GridBarrier>(1);
    std::vector<Transfer> list;
    for (uint32_t receive = 0; receive < 2; ++receive) {
      for (uint32_t p = 0; p < c.ranks; ++p) {
        for (uint32_t i = 0; i < kEach; ++i) {
          const uint64_t bytes = receive ? size(p, r, i) : size(r, p, i);
          char* data = job.alloc<char>(bytes);
          for (uint64_t b = 0; b < bytes && !receive; ++b) data[b] = value(r, p, 0, i, b);
          list.push_back(Transfer{data, bytes, p, receive});
          if (receive) in[r].push_back(list.back());
        }
      }
    }
    uint64_t* memory = job.alloc<uint64_t>(all * kTransferWords);
    for (uint32_t first = 0; first <= all; first += kMaxTransfers) {
      TransferArgs a = w.args(static_cast<TransferArgs*>(nullptr), r);
      a.transfers = all;
      a.memory = memory;
      a.first = first;
      for (uint32_t t = first; t < all && a.listed < kMaxTransfers; ++t) {
        a.theirs[a.listed] = t % 3 == 0 ? 0 : reinterpret_cast<uint64_t>(list[t].buffer);
        a.list[a.listed++] = list[t];
      }
      s[r].calls.push_back(a);
    }
    TransferArgs a = w.args(static_cast<TransferArgs*>(nullptr), r);
    a.transfers = all;
    a.memory = memory;
    s[r].calls.push_back(a);
  }
  for (uint32_t r = 0; r < c.ranks; ++r) job.launch(r, c.grid[r], c.block[r], sequence<TransferArgs>, s[r]);
  job.run();
  for (uint32_t r = 0; r < c.ranks; ++r) {
    for (uint32_t n = 0; n < in[r].size(); ++n) {
      const uint32_t p = n / kEach, i = n % kEach;
      for (uint64_t b = 0; b < in[r][n].bytes; ++b) {
        job.expect(static_cast<char*>(in[r][n].buffer)[b] == value(p, r, 0, i, b), "rank %u, message %u from %u, byte %llu", r, i, p, (unsigned long long)b);
      }
    }
  }
}

// Ranks that disagree on a length: the one that receives says whose message it is, and
// both lengths, nothing is stored behind a buffer, and kernels leave when the host has ended the job.
template <class A>
void lengths(check::Job& job, const Config& c, void (*kernel)(const A*, const LaunchShape*), const std::vector<uint64_t>& sends,
             const std::vector<uint64_t>& expects, uint64_t long_bytes, uint32_t beside = 0) {
  for (uint32_t r = 0; r < 2; ++r) store_relaxed(&job.control(r)->abort, 0u);
  World w(job, c, long_bytes, beside);
  const uint64_t behind = *std::max_element(sends.begin(), sends.end()) + 1;
  std::vector<char*> in;
  for (uint32_t r = 0; r < 2; ++r) {
    A a = w.args(static_cast<A*>(nullptr), r);
    State* notes = head_of(a).notes = w.states[r] = job.alloc<State>(1);
    for (uint64_t bytes : r == 0 ? sends : expects) {
      char* data = job.alloc<char>(bytes + behind);
      memset(data, r == 0 ? 0x11 : 0x55, bytes + behind);
      if (r == 1) in.push_back(data);
      if constexpr (sizeof(A) == sizeof(TransferArgs)) a.theirs[a.transfers] = beside != 0 ? 0 : reinterpret_cast<uint64_t>(data);
      a.list[a.transfers++] = Transfer{data, bytes, 1 - r, r};
    }
    WaitControl* control[2] = {job.control(0), job.control(1)};
    job.launch(r, c.grid[r], c.block[r], kernel, a);
    if (r == 0) continue;
    job.beside(r, [notes, control, reported = false]() mutable {
      if (reported || load_acquire(&notes->mismatch) == 0) return false;
      reported = true;
      for (WaitControl* x : control) store_relaxed(&x->abort, 1u);  // as hosts do
      return true;
    });
  }
  job.run();
  const State* found = w.states[1];
  const size_t first = std::mismatch(sends.begin(), sends.end(), expects.begin()).first - sends.begin();
  job.expect(found->mismatch == kMismatchLength && found->sent == sends[first] && found->expected == expects[first],
             "a message of %llu bytes met a receive of %llu: noted %#x, %llu and %llu", (unsigned long long)sends[first],
             (unsigned long long)expects[first], found->mismatch, (unsigned long long)found->sent, (unsigned long long)found->expected);
  job.expect(w.states[0]->mismatch == 0, "the sender noted %#x", w.states[0]->mismatch);
  for (size_t i = 0; i < in.size(); ++i) {
    for (uint64_t b = expects[i]; b < expects[i] + behind; ++b) {
      job.expect(in[i][b] == 0x55, "byte %llu was stored, of a buffer of %llu", (unsigned long long)b, (unsigned long long)expects[i]);
    }
  }
}

void disagreements(check::Job& job) {
  constexpr uint64_t pairs[][2] = {{1799, 1800}, {1800, 1799}, {1000, 1001}, {0, 1}, {1, 0}, {10, 9000}, {9000, 10}, {1800, 20000}, {20000, 1800}, {20000, 20016}};
  for (const auto& x : pairs) {
    lengths(job, kSplit, mscclpp_transfers_few_ll128, {x[0]}, {x[1]}, kNever);
    lengths(job, kWrap, mscclpp_transfers_few_ll128, {x[0]}, {x[1]}, kNever);
    lengths(job, kSplit, mscclpp_transfers_ll128, {x[0]}, {x[1]}, 1800);
    lengths(job, kWrap, mscclpp_transfers_ll128, {x[0]}, {x[1]}, 1800);
    lengths(job, kSplit, mscclpp_transfers_ll128, {x[0]}, {x[1]}, 1800, 512);
    lengths(job, kWrap, mscclpp_transfers_ll128, {x[0]}, {x[1]}, 1800, 512);
  }
  for (uint32_t beside : {0, 512}) lengths(job, kSplit, mscclpp_transfers_ll128, {9000, 300}, {300, 9000}, 1800, beside);
}

// A group is answered by single messages, in another order: no rank waits for a message before
// it has sent what the other needs to send it.
void answered(check::Job& job, const Config& c, bool direct, uint32_t beside) {
  World w(job, c, 432, beside);
  constexpr uint64_t kBytes = 9000;
  std::vector<Sequence<TransferArgs>> s(2);
  char* in[2];
  for (uint32_t r = 0; r < 2; ++r) {
    s[r].kernel = mscclpp_transfers_ll128;
    s[r].stream = job.alloc<GridBarrier>(1);
    char* out = job.alloc<char>(kBytes);
    in[r] = job.alloc<char>(kBytes);
    for (uint64_t b = 0; b < kBytes; ++b) out[b] = value(r, 1 - r, 0, 0, b);
    TransferArgs a = w.args(static_cast<TransferArgs*>(nullptr), r), next = a;
    const auto sends = [&](TransferArgs& x) { x.list[x.transfers++] = Transfer{out, kBytes, 1 - r, 0}; };
    const auto receives = [&](TransferArgs& x) {
      x.theirs[x.transfers] = direct ? reinterpret_cast<uint64_t>(in[r]) : 0;
      x.list[x.transfers++] = Transfer{in[r], kBytes, 1 - r, 1};
    };
    if (r == 0) sends(a);
    receives(a);
    s[r].calls.push_back(a);
    if (r == 0) continue;
    sends(next);
    s[r].calls.push_back(next);
  }
  for (uint32_t r = 0; r < 2; ++r) job.launch(r, c.grid[r], c.block[r], sequence<TransferArgs>, s[r]);
  job.run();
  for (uint32_t r = 0; r < 2; ++r) {
    for (uint64_t b = 0; b < kBytes; ++b) job.expect(in[r][b] == value(1 - r, r, 0, 0, b), "rank %u, byte %llu", r, (unsigned long long)b);
  }
}

void answers(check::Job& job) {
  for (const Config& c : {kOneBlockALane, kSplit}) {
    answered(job, c, true, 0);
    for (uint32_t beside : {0, 64, 640}) answered(job, c, false, beside);
  }
}

// Behind a long message, one way, the next one comes through other pipes, to where that lay beside its chunks.
void followed(check::Job& job) {
  const Config& c = kSplit;
  World w(job, c, 432, 512);
  constexpr uint64_t kBytes = 9000;
  std::vector<Sequence<TransferArgs>> s(2);
  char* in[2];
  for (uint32_t r = 0; r < 2; ++r) {
    s[r] = {mscclpp_transfers_ll128, {}, job.alloc<GridBarrier>(1), mscclpp_transfers_chunk};
    for (uint32_t k = 0; k < 2; ++k) {
      TransferArgs a = w.args(static_cast<TransferArgs*>(nullptr), r);
      char* data = job.alloc<char>(kBytes);
      if (r == 1) in[k] = data;
      for (uint64_t b = 0; b < kBytes && r == 0; ++b) data[b] = value(0, 1, k, 0, b);
      a.list[a.transfers++] = Transfer{data, kBytes, 1 - r, r};
      s[r].calls.push_back(a);
    }
  }
  for (uint32_t r = 0; r < 2; ++r) job.launch(r, c.grid[r], c.block[r], sequence<TransferArgs>, s[r]);
  job.run();
  for (uint32_t k = 0; k < 2; ++k) {
    for (uint64_t b = 0; b < kBytes; ++b) job.expect(in[k][b] == value(0, 1, k, 0, b), "call %u, byte %llu", k, (unsigned long long)b);
  }
}

// While rank 1 takes a long message of rank 2 from beside chunks, rank 0 is a call ahead and fills its own pipe to rank 1.
void ahead(check::Job& job) {
  const Config& c = kMixed;
  World w(job, c, 432, 320);
  constexpr uint64_t kBytes[] = {12000, 1000};  // of the second call as much as the pipe has room for
  std::vector<Sequence<TransferArgs>> s(c.ranks);
  char* in[2];
  for (uint32_t r = 0; r < c.ranks; ++r) {
    s[r] = {r == 0 ? mscclpp_transfers_chunk : mscclpp_transfers_ll128, {}, job.alloc<GridBarrier>(1), r == 1 ? mscclpp_transfers_chunk : nullptr};
    for (uint32_t k = 0; k < 2; ++k) {
      const uint32_t from = 2 - 2 * k;
      if (r != 1 && r != from) continue;
      TransferArgs a = w.args(static_cast<TransferArgs*>(nullptr), r);
      char* data = job.alloc<char>(kBytes[k]);
      if (r == 1) in[k] = data;
      for (uint64_t b = 0; b < kBytes[k] && r != 1; ++b) data[b] = value(r, 1, k, 0, b);
      a.list[a.transfers++] = Transfer{data, kBytes[k], r == 1 ? from : 1, r == 1};
      s[r].calls.push_back(a);
    }
  }
  for (uint32_t r = 0; r < c.ranks; ++r) job.launch(r, c.grid[r], c.block[r], sequence<TransferArgs>, s[r]);
  job.run();
  for (uint32_t k = 0; k < 2; ++k) {
    for (uint64_t b = 0; b < kBytes[k]; ++b) job.expect(in[k][b] == value(2 - 2 * k, 1, k, 0, b), "call %u, byte %llu", k, (unsigned long long)b);
  }
}

}  // namespace

MSCCLPP_CHECK_MAIN({"exchange", [](check::Job& job) { exchange(job, kMixed, mscclpp_transfers_ll128, 3, odd_sizes); }},
                   {"exchange_split", [](check::Job& job) { exchange(job, kSplit, mscclpp_transfers_ll128, 3, odd_sizes); }},
                   {"exchange_long", [](check::Job& job) { exchange(job, kMixed, mscclpp_transfers_ll128, 3, odd_sizes, 432); }},
                   {"exchange_long_split", [](check::Job& job) { exchange(job, kSplit, mscclpp_transfers_ll128, 3, odd_sizes, 432); }},
                   {"exchange_long_same", [](check::Job& job) { exchange(job, kWarps, mscclpp_transfers_ll128, 3, same_sizes, 432); }},
                   {"exchange_long_eight", [](check::Job& job) { exchange(job, kEight, mscclpp_transfers_ll128, 1, odd_sizes, 432); }},
                   {"exchange_long_rewrite", [](check::Job& job) { exchange(job, kRewrite, mscclpp_transfers_ll128, 3, odd_sizes, 432); }},
                   {"exchange_beside", [](check::Job& job) { exchange(job, kMixed, mscclpp_transfers_ll128, 3, odd_sizes, 432, 320); }},
                   {"exchange_beside_split", [](check::Job& job) { exchange(job, kSplit, mscclpp_transfers_ll128, 3, odd_sizes, 432, 512); }},
                   {"exchange_beside_same", [](check::Job& job) { exchange(job, kWarps, mscclpp_transfers_ll128, 3, same_sizes, 432, 64); }},
                   {"exchange_beside_eight", [](check::Job& job) { exchange(job, kEight, mscclpp_transfers_ll128, 2, odd_sizes, 432, 1024); }},
                   {"exchange_beside_rewrite", [](check::Job& job) { exchange(job, kRewrite, mscclpp_transfers_ll128, 3, odd_sizes, 432, 192); }},
                   {"exchange_few", [](check::Job& job) { exchange(job, kMixed, mscclpp_transfers_few_ll128, 2, odd_sizes); }},
                   {"exchange_few_split", [](check::Job& job) { exchange(job, kSplit, mscclpp_transfers_few_ll128, 1, odd_sizes); }},
                   {"exchange_wrap", [](check::Job& job) { exchange(job, kWrap, mscclpp_transfers_ll128, 2, growing_sizes); }},
                   {"exchange_wide", [](check::Job& job) { exchange(job, kWide, mscclpp_transfers_few_ll128, 1, odd_sizes); }}, {"wrap", [](check::Job& job) { wrap(job, kWrap, growing_sizes); }},
                   {"rewrite", [](check::Job& job) { wrap(job, kRewrite, three_chunks); }}, {"many", many}, {"disagreements", disagreements}, {"answers", answers},
                   {"followed", followed}, {"ahead", ahead})
