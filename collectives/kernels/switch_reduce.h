// Reductions through the window of a switch.
#ifndef MSCCLPP_COLLECTIVES_SWITCH_REDUCE_H_
#define MSCCLPP_COLLECTIVES_SWITCH_REDUCE_H_

#include "reduce_units.h"
#include "switch_window.h"

namespace mscclpp {
namespace collectives {

#if MSCCLPP_MULTIMEM
// A window_twoshot is an all-reduce in steps: ranks reduce one step, each its slice, and copy the next one in before the
// barrier behind which they copy the first one out. On processors allreduce_switch.h is that for any operation.
template <class T, ReduceOp Op>
MSCCLPP_DEVICE void window_steps(const Args& a, const Window& window) {
  const Common& c = a.common;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint32_t tid = global_thread(), threads = global_threads();
  const uint64_t each = window.third() / sizeof(T), steps = ceil_div(a.count, each);
  const Reduction reduction = reduction_of(a);
  const auto fill = [&](uint64_t k) MSCCLPP_LAMBDA {
    copy(window.own(window.at(k)), in + k * each * sizeof(T), smaller(each, a.count - k * each) * sizeof(T), tid, threads);
  };
  if (steps > 0) fill(0);
  for (uint64_t k = 0; k < steps; ++k) {
    if (k == 0 && !window.barrier()) return;
    const uint64_t count = smaller(each, a.count - k * each);
    const Slice mine = slice_of(count, c.rank, c.ranks, sizeof(T));
    const uint64_t at = window.at(k) + mine.first * sizeof(T);
    window.template reduce_words<T, Op>(at, at, mine.count, reduction);
    if (k + 1 < steps) fill(k + 1);
    if (!window.barrier()) return;
    copy(out + k * each * sizeof(T), window.own(window.at(k)), count * sizeof(T), tid, threads);
  }
}

template <class T, ReduceOp Op>
MSCCLPP_DEVICE void window_twoshot(const Args& a) {
  if (agree(a.common)) window_steps<T, Op>(a, Window(a));
}

// registered_twoshot is an all-reduce of memory that is a part of the window: the sums go from all inputs to all outputs
// through registers. The elements behind the last whole word each rank reads before the last barrier and writes behind it,
// since a store of words to all copies would reach beyond the buffer.
template <class T, ReduceOp Op>
MSCCLPP_DEVICE void registered_twoshot(const Args& a) {
  const Common& c = a.common;
  await_previous();
  if (!agree(c)) return;
  const Window window(a);
  const Reduction reduction = reduction_of(a);
  const Place place{a.input_offset, a.output_offset, ((a.input_offset | a.output_offset) & 15) == 0};
  const Meeting met = window_meet(a, window, place);
  if (met == Meeting::kLeft) return;
  if (met == Meeting::kElsewhere) return window_steps<T, Op>(a, window);
  const uint64_t all = a.count * sizeof(T), words = all / 16 * 16;
  const Slice mine = slice_of(words / sizeof(T), c.rank, c.ranks, sizeof(T));
  const uint64_t first = mine.first * sizeof(T);
  window.template reduce_words<T, Op>(place.input + first, place.output + first, mine.count, reduction);
  Vec16 rest{0, 0, 0, 0};
  const bool last = global_thread() == 0 && words < all;
  if (last) rest = window.template word<T, Op>(static_cast<const char*>(window.window) + place.input + words, reduction);
  if (!window.barrier()) return;
  if (last) Window::save<T>(static_cast<char*>(a.output) + words, rest, all - words);
}
#endif

// A window_scatter is a reduce-scatter: the switch reduces this rank's part on its way here.
template <class T, ReduceOp Op>
MSCCLPP_DEVICE void scatter_steps(const Args& a, const Window& window) {
  const Common& c = a.common;
  const char* in = static_cast<const char*>(a.input);
  char* out = static_cast<char*>(a.output);
  const uint32_t tid = global_thread(), threads = global_threads();
  const uint64_t part = window.third() / c.ranks / 64 * 64, each = part / sizeof(T), steps = ceil_div(a.count, each);
  const Reduction reduction = reduction_of(a);
  for (uint64_t k = 0; k < steps; ++k) {
    const uint64_t first = k * each, count = smaller(each, a.count - first);
    for (uint32_t r = 0; r < c.ranks; ++r) {
      copy(window.own(window.at(k) + r * part), in + (r * a.count + first) * sizeof(T), count * sizeof(T), tid, threads);
    }
    if (!window.barrier()) return;
    window.template pull<T, Op>(out + first * sizeof(T), window.at(k) + c.rank * part, count, reduction);
  }
  if (steps > 0) window.barrier();  // others still read this rank's copy
}

template <class T, ReduceOp Op>
MSCCLPP_DEVICE void window_scatter(const Args& a) {
  if (agree(a.common)) scatter_steps<T, Op>(a, Window(a));
}

#if MSCCLPP_MULTIMEM
// registered_scatter is a reduce-scatter of inputs that are a part of the window. It is not for calls in place, where a rank
// would write by the one name of the memory what it reads by the other.
template <class T, ReduceOp Op>
MSCCLPP_DEVICE void registered_scatter(const Args& a) {
  const Common& c = a.common;
  await_previous();
  if (!agree(c)) return;
  const Window window(a);
  const uint64_t part = a.count * sizeof(T);
  const Place place{a.input_offset, 0, ((a.input_offset | part) & 15) == 0};
  const Meeting met = window_meet(a, window, place);
  if (met == Meeting::kLeft) return;
  if (met == Meeting::kElsewhere) return scatter_steps<T, Op>(a, window);
  window.template pull<T, Op>(static_cast<char*>(a.output), place.input + c.rank * part, a.count, reduction_of(a));
  window.barrier();
}
#endif

// Epochs of the packets that lie behind the data of a window: those of packets.h, with a word and halves of their own.
// All ranks send to all in each, so two halves are enough here, too.
class WindowEpochs {
 public:
  MSCCLPP_DEVICE WindowEpochs(const Common& c, const Window& window, uint64_t pieces)
      : c_(c), window_(window), half_((window.flag - window.bytes) / 2 / 64 * 64), epoch_(take(pieces)) {}

  // next begins an epoch. All blocks call it; between two of a launch it waits for all blocks of this rank.
  MSCCLPP_DEVICE bool next() {
    if (steps_ > 0 && !blocks_sync(c_.state, c_.control)) return false;
    ++steps_;
    ++epoch_;
    return !clears(epoch_) || clear();
  }
  MSCCLPP_DEVICE uint32_t flag() const { return flag_of(epoch_); }

  // slot is where packets from a rank lie, in each copy.
  MSCCLPP_DEVICE uint64_t slot(uint32_t from) const { return window_.bytes + (epoch_ & 1) * half_ + from * slot_bytes(c_, window_); }
  MSCCLPP_DEVICE static uint64_t slot_bytes(const Common& c, const Window& w) { return (w.flag - w.bytes) / 2 / c.ranks / 64 * 64; }

 private:
  // take is take_epochs with a word of its own.
  MSCCLPP_DEVICE uint64_t take(uint64_t n) const {
    if (n == 0) return 0;
    constexpr uint32_t kOwnWord = 8;  // of the line of packets
    const uint64_t others = grid_dim() - 1;
    uint64_t epoch = 0;
    if (thread_id() == 0) {
      const uint64_t word = fetch_add_relaxed_device(&c_.state->epochs[kPacketArea][kOwnWord], block_id() < others ? 1 : n * kEpoch - others);
      epoch = word / kEpoch - (word % kEpoch >= kEpoch - others ? n - 1 : 0);
    }
    return block_share(epoch);
  }
  MSCCLPP_DEVICE bool clear() const {
    char* other = window_.own(window_.bytes + ((epoch_ + 1) & 1) * half_);
    for (uint64_t i = global_thread(); i < half_ / 16; i += global_threads()) store16_packet(other + i * 16, Vec16{0, 0, 0, 0});
    window_.fence();
    fence_system();  // before anything that this rank sends
    return blocks_sync(c_.state, c_.control);
  }

  const Common& c_;
  const Window& window_;
  const uint64_t half_;
  uint64_t epoch_;
  uint32_t steps_ = 0;
};

// send_to_all stores packets to all copies. Units go to threads as reduce_units has them.
MSCCLPP_DEVICE void send_to_all(const Window& window, uint64_t slot, const char* data, uint64_t bytes, uint32_t flag) {
#if MSCCLPP_MULTIMEM
  char* to = static_cast<char*>(window.window) + slot;
  for (uint64_t at = uint64_t(global_thread()) * kUnit; at < bytes; at += uint64_t(global_threads()) * kUnit) {
    MSCCLPP_UNROLL
    for (uint64_t k = 0; k < kUnit; k += 4) {
      if (at + k < bytes) mscclpp::detail::multimem_packet(to + 2 * (at + k), mscclpp::detail::load_some<uint32_t>(data + at + k, bytes - at - k), flag);
    }
  }
#else
  for (uint32_t i = 0; i < window.ranks; ++i) {
    if (i != window.rank) send_packets<LL8Packet>(window.copyOf(i) + slot, data, bytes, flag);
  }
#endif
}

// A window_packets is an all-reduce of small messages: each rank sends everything to all, in one store, and reduces what
// came in the order of ranks. The results are those of the algorithms without a switch, bit for bit.
template <class T>
MSCCLPP_DEVICE void window_packets(const Args& a) {
  const Common& c = a.common;
  if (!agree(c)) return;
  const Window window(a);
  const uint64_t total = a.count * sizeof(T), piece = WindowEpochs::slot_bytes(c, window) / 2 / 64 * 64;
  WindowEpochs epochs(c, window, ceil_div(total, piece));
  for (uint64_t base = 0; base < total; base += piece) {
    const uint64_t bytes = smaller(piece, total - base);
    const char* in = static_cast<const char*>(a.input) + base;
    if (!epochs.next()) return;
    send_to_all(window, epochs.slot(c.rank), in, bytes, epochs.flag());
    const auto slot_of = [&](uint32_t r) MSCCLPP_LAMBDA -> const char* { return window.own(epochs.slot(r)); };
    const bool ok = reduce_units<T, LL8Packet>(a, static_cast<char*>(a.output) + base, in, bytes, epochs.flag(), slot_of, [](uint64_t, uint64_t) {});
    if (!block_sync_and(ok)) return;
  }
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_SWITCH_REDUCE_H_
