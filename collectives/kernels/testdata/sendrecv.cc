// Messages between hosts in the checking emulator: ranks, each on a host of its own,
// launched with different grids, whose proxies take their time; groups one after another
// as in a stream.
#define MSCCLPP_TYPE 6
#include <mscclpp/check.h>

#include <deque>

#include "../exchange_family.h"

using namespace mscclpp;
using namespace mscclpp::collectives;

namespace {

constexpr uint64_t kPiece = 24;  // bytes of a message
constexpr uint64_t kSlot = sizeof(SendRecvHead) + kPiece;

struct Config {
  uint32_t ranks;
  uint32_t grid[3], block[3];  // of rank r
};
constexpr Config kTwo = {2, {1, 9, 0}, {3, 2, 0}};  // also more blocks than there is work for
constexpr Config kThree = {3, {2, 1, 6}, {2, 5, 1}};

// A message of a group. Each of its bytes follows from tag.
struct Message {
  uint32_t peer, receive;
  uint64_t bytes;
  uint32_t tag;
};
char letter(uint32_t tag, uint64_t i) { return static_cast<char>(tag * 37 + i * 3 + i / 256 + 1); }

// One rank: groups, and the buffers of each message.
struct Rank {
  std::vector<std::vector<Message>> groups;
  std::vector<std::vector<char*>> buffers;
  std::vector<SendRecvArgs> launches;
  GridBarrier* stream;
};

void stream(const Rank* r, const LaunchShape* shape) {
  for (const SendRecvArgs& a : r->launches) {
    mscclpp_steps_sendrecv(&a, shape);
    if (!grid_sync(r->stream, a.control)) return;
  }
}

// World is the memory of all ranks, and their proxies.
struct World {
  check::Job& job;
  const Config c;
  std::vector<SendRecvArgs> args;
  std::vector<check::Ring> rings;
  std::vector<uint64_t*> pieces, credits;  // signals that came to rank r from rank p: r * ranks + p
  std::vector<std::deque<Trigger>> pending;
  std::vector<Rank> ranks;

  World(check::Job& job, const Config& c) : job(job), c(c), pending(c.ranks), ranks(c.ranks) {
    for (uint32_t i = 0; i < c.ranks * c.ranks; ++i) {
      pieces.push_back(job.alloc<uint64_t>(1));
      credits.push_back(job.alloc<uint64_t>(1));
    }
    for (uint32_t r = 0; r < c.ranks; ++r) {
      rings.push_back(job.ring(r, 4));
      SendRecvArgs a = {};
      a.control = job.control(r);
      a.state = job.alloc<SendRecvState>(1);
      a.peers = job.alloc<SendRecvPeer>(c.ranks);
      a.note = job.alloc<SendRecvNote>(1);
      a.departed = job.alloc<uint32_t>(c.ranks);
      a.data = channels(r, pieces, 0);
      a.credit = channels(r, credits, c.ranks);
      a.slots = job.alloc<char>(2 * c.ranks * kSendRecvSlots * kSlot);
      a.slot = kSlot;
      a.rank = r;
      a.ranks = c.ranks;
      a.signature.algorithm = 0x123456;
      args.push_back(a);
      ranks[r].stream = job.alloc<GridBarrier>(1);
    }
  }

  PortChannelHandle* channels(uint32_t r, const std::vector<uint64_t*>& counters, uint32_t from) {
    PortChannelHandle* ports = job.alloc<PortChannelHandle>(c.ranks);
    for (uint32_t p = 0; p < c.ranks; ++p) {
      ports[p].semaphore = SemaphoreHandle{counters[r * c.ranks + p], job.alloc<uint64_t>(1), nullptr, job.control(r), p, from + p + 1};
      ports[p].fifo = rings[r].handle;
      ports[p].dst_memory = p;
      ports[p].semaphore_slot = from + p;
    }
    return ports;
  }

  // add puts a message into the last group of a rank.
  void add(uint32_t r, Message m) {
    Rank& x = ranks[r];
    x.groups.back().push_back(m);
    char* buffer = job.alloc<char>(m.bytes);
    if (m.receive == 0) {
      for (uint64_t i = 0; i < m.bytes; ++i) buffer[i] = letter(m.tag, i);
    }
    x.buffers.back().push_back(buffer);
  }
  void group(uint32_t r) {
    ranks[r].groups.emplace_back();
    ranks[r].buffers.emplace_back();
  }

  // enlist makes the launches of a rank. Lists in memory take launches of their own, of few
  // messages each.
  void enlist(uint32_t r, bool memory) {
    Rank& x = ranks[r];
    x.launches.clear();
    for (size_t g = 0; g < x.groups.size(); ++g) {
      std::vector<Transfer> list;
      for (uint32_t direction = 0; direction < 2; ++direction) {
        for (uint32_t p = 0; p < c.ranks; ++p) {
          for (size_t m = 0; m < x.groups[g].size(); ++m) {
            const Message& message = x.groups[g][m];
            if (message.receive != direction || message.peer != p) continue;
            const bool begins = list.empty() || list.back().peer != p || (list.back().receive & 1) != direction;
            const uint32_t queue = list.empty() ? 0 : list.back().receive / 2 + (begins ? 1 : 0);
            list.push_back(Transfer{x.buffers[g][m], message.bytes, p, 2 * queue + direction});
          }
        }
      }
      SendRecvArgs a = args[r];
      a.transfers = static_cast<uint32_t>(list.size());
      if (!memory) {
        for (size_t t = 0; t < list.size(); ++t) a.list[t] = list[t];
        x.launches.push_back(a);
        continue;
      }
      a.memory = job.alloc<uint64_t>(kTransferWords * list.size());
      for (a.first = 0; a.first < list.size(); a.first += a.listed) {
        a.listed = static_cast<uint32_t>(smaller(3, list.size() - a.first));
        for (uint32_t t = 0; t < a.listed; ++t) a.list[t] = list[a.first + t];
        x.launches.push_back(a);
      }
      a.listed = 0;
      x.launches.push_back(a);
    }
  }

  void run(bool memory = false) {
    for (uint32_t r = 0; r < c.ranks; ++r) {
      for (size_t g = 0; g < ranks[r].groups.size(); ++g) {
        for (size_t m = 0; m < ranks[r].groups[g].size(); ++m) {
          if (ranks[r].groups[g][m].receive != 0) memset(ranks[r].buffers[g][m], 0, ranks[r].groups[g][m].bytes);
        }
      }
      enlist(r, memory);
      proxy(r);
      job.launch(r, c.grid[r], c.block[r], stream, ranks[r]);
    }
    job.run();
    check();
  }

  void check() {
    for (uint32_t r = 0; r < c.ranks; ++r) {
      for (size_t g = 0; g < ranks[r].groups.size(); ++g) {
        for (size_t m = 0; m < ranks[r].groups[g].size(); ++m) {
          const Message& x = ranks[r].groups[g][m];
          uint64_t wrong = 0;
          for (uint64_t i = 0; i < x.bytes; ++i) wrong += ranks[r].buffers[g][m][i] != letter(x.tag, i);
          job.expect(wrong == 0, "rank %u, group %zu, message %zu: %llu wrong bytes of %llu", r, g, m, (unsigned long long)wrong, (unsigned long long)x.bytes);
        }
      }
      job.expect(args[r].note->found == 0 && args[r].state->left == 0, "rank %u has left, or refused something", r);
      for (uint32_t b = 0; b < kSendRecvBlocks; ++b) job.expect(args[r].note->waits[b] == 0, "rank %u, block %u waits", r, b);
    }
  }

  // proxy performs the triggers of one rank in order, each after a random delay.
  void proxy(uint32_t r) {
    job.beside(r, [this, r] {
      Trigger t;
      bool did = rings[r].take(t);
      if (did) pending[r].push_back(t);
      if (pending[r].empty() || (did && job.random(2) == 0)) return did;
      t = pending[r].front();
      pending[r].pop_front();
      const uint64_t bytes = mscclpp_trigger_bytes(t.fst), src = mscclpp_trigger_from(t.fst), dst = mscclpp_trigger_to(t.snd);
      const uint32_t to = mscclpp_trigger_dst(t.snd), type = mscclpp_trigger_kind(t.snd), semaphore = mscclpp_trigger_slot(t.snd);
      if (type == kTriggerSignal) {
        job.expect(semaphore >= c.ranks && semaphore < 2 * c.ranks, "rank %u: a credit by semaphore %u", r, semaphore);
        add_release(credits[(semaphore - c.ranks) * c.ranks + r], static_cast<uint64_t>(1));
        return true;
      }
      job.expect(type == (kTriggerData | kTriggerSignal) && to < c.ranks && to != r && semaphore == to, "rank %u: trigger of type %u for %u", r, type, to);
      const uint64_t half = c.ranks * kSendRecvSlots * kSlot;
      job.expect(src / kSlot / kSendRecvSlots == to && (dst - half) / kSlot / kSendRecvSlots == r && src % kSlot == 0 && (dst - half) % kSlot == 0 && bytes <= kSlot,
                 "rank %u: %llu bytes from %llu to %llu", r, (unsigned long long)bytes, (unsigned long long)src, (unsigned long long)dst);
      memcpy(args[to].slots + dst, args[r].slots + src, bytes);
      add_release(pieces[to * c.ranks + r], static_cast<uint64_t>(1));
      return true;
    });
  }
};

// Groups of everything, twice: what each rank has for each other one, of many lengths, and
// more pieces than there are slots.
void results(check::Job& job, const Config& c, bool memory) {
  constexpr uint64_t sizes[] = {0, 1, kPiece, kPiece + 1, 3 * kPiece - 1, 11 * kPiece + 5};
  World w(job, c);
  uint32_t tag = 0;
  for (uint32_t call = 0; call < 3; ++call) {
    for (uint32_t r = 0; r < c.ranks; ++r) w.group(r);
    for (uint32_t from = 0; from < c.ranks; ++from) {
      for (uint32_t to = 0; to < c.ranks; ++to) {
        if (from == to || (call == 1 && from > to)) continue;
        for (uint32_t k = 0; k <= call; ++k) {
          const uint64_t bytes = sizes[(from * 5 + to * 3 + call + k) % (sizeof(sizes) / sizeof(sizes[0]))];
          w.add(from, Message{to, 0, bytes, ++tag});
          w.add(to, Message{from, 1, bytes, tag});
        }
      }
    }
  }
  w.run(memory);
  w.run(memory);
}

// Messages that wait for each other over three ranks: a kernel that moved one at a time in
// any order of directions or peers would wait forever.
void circle(check::Job& job) {
  constexpr uint64_t bytes = (kSendRecvSlots + 3) * kPiece;  // more than slots hold
  World w(job, kThree);
  for (uint32_t again = 0; again < 2; ++again) {
    w.group(0);  // receives from 2, which sends after it has received from 1, which waits for this group
    w.add(0, Message{2, 1, bytes, 3});
    w.add(0, Message{1, 0, bytes, 1});
    w.group(1);
    w.add(1, Message{0, 1, bytes, 1});
    w.group(1);
    w.add(1, Message{2, 0, bytes, 2});
    w.group(2);
    w.add(2, Message{1, 1, bytes, 2});
    w.group(2);
    w.add(2, Message{0, 0, bytes, 3});
  }
  w.run();
}

// Ranks that all send first, and then receive, make progress as long as the slots hold the
// messages in flight, however many messages went before.
void ring(check::Job& job) {
  World w(job, kThree);
  for (uint32_t again = 0; again < 3 * kSendRecvSlots; ++again) {
    for (uint32_t r = 0; r < 3; ++r) {
      const uint32_t next = (r + 1) % 3, previous = (r + 2) % 3;
      w.group(r);
      w.add(r, Message{next, 0, kPiece, again * 3 + r});
      w.group(r);
      w.add(r, Message{previous, 1, kPiece, again * 3 + previous});
    }
  }
  w.run();
}

// A rank that has sent its last messages may have left the job before they are received. Once its
// departure is noted, no peer signals it.
void last(check::Job& job, bool ended) {
  World w(job, kTwo);
  for (uint32_t k = 0; k < kSendRecvSlots / 2; ++k) {
    const uint64_t bytes = k + 1 == kSendRecvSlots / 2 ? (kSendRecvSlots - k) * kPiece : kPiece;  // all slots in all
    w.group(0);
    w.add(0, Message{1, 0, bytes, k});
    w.group(1);
    w.add(1, Message{0, 1, bytes, k});
  }
  for (uint32_t r = 0; r < 2; ++r) {
    w.enlist(r, false);
    w.proxy(r);
    job.launch(r, kTwo.grid[r], kTwo.block[r], stream, w.ranks[r]);
    if (r == 0 && ended) job.run();
    const_cast<uint32_t*>(w.args[1].departed)[0] = 1;
  }
  job.run();
  w.check();
  job.expect(w.rings[1].taken == 0, "%llu signals for a rank that may have left", (unsigned long long)w.rings[1].taken);
}

// The receiver of a message of another length notes it for the host, and waits until the host ends the job.
void refused(check::Job& job) {
  World w(job, kTwo);
  w.group(0);
  w.add(0, Message{1, 0, kPiece + 3, 1});
  w.group(1);
  w.add(1, Message{0, 1, kPiece + 4, 1});
  for (uint32_t r = 0; r < 2; ++r) {
    w.enlist(r, false);
    w.proxy(r);
    job.launch(r, kTwo.grid[r], kTwo.block[r], stream, w.ranks[r]);
  }
  job.beside(1, [&] {  // the host
    if (load_relaxed(&job.control(1)->abort) != 0 || load_acquire(&w.args[1].note->found) != 1) return false;
    for (uint32_t r = 0; r < 2; ++r) store_relaxed(&job.control(r)->abort, 1u);
    return true;
  });
  job.run();
  const SendRecvNote* n = w.args[1].note;
  job.expect(n->peer == 0 && n->sent == kPiece + 3 && n->expected == kPiece + 4, "noted rank %u, %llu and %llu bytes", n->peer, (unsigned long long)n->sent,
             (unsigned long long)n->expected);
  job.expect(w.args[1].state->left == 1, "rank 1 has not left");
}

// Behind a launch that was left, and behind a wait that an earlier kernel has left, here or
// inside the host, nothing is sent.
void behind(check::Job& job) {
  for (uint32_t which = 0; which < 3; ++which) {
    World w(job, kTwo);
    WaitControl* inside = job.alloc<WaitControl>(1);
    if (which == 2) {
      w.args[0].state->left = 1;
    } else {
      (which == 0 ? job.control(0) : inside)->reported = 1;
    }
    w.args[0].inside = inside;
    w.group(0);
    w.add(0, Message{1, 0, kPiece, 1});
    w.enlist(0, false);
    w.proxy(0);
    job.launch(0, 2, 2, stream, w.ranks[0]);
    job.run();
    job.expect(w.rings[0].taken == 0, "%llu messages behind a wait that was left", (unsigned long long)w.rings[0].taken);
    job.control(0)->reported = 0;
  }
}

}  // namespace

MSCCLPP_CHECK_MAIN({"two", [](check::Job& job) { results(job, kTwo, false); }}, {"two_in_memory", [](check::Job& job) { results(job, kTwo, true); }},
                   {"three", [](check::Job& job) { results(job, kThree, false); }}, {"three_in_memory", [](check::Job& job) { results(job, kThree, true); }},
                   {"circle", circle}, {"ring", ring}, {"last", [](check::Job& job) { last(job, true); }}, {"last_under_way", [](check::Job& job) { last(job, false); }},
                   {"refused", refused}, {"behind", behind})
