// Collectives by LL packets: data and flag arrive together, so a message costs one
// store, at half the bandwidth.
//
// Epochs. Every packet collective moves all ranks from epoch e to e + 1, and each
// rank receives at least one packet from every peer in it, if only an empty one.
// Packets of epoch e carry a flag made from e and go to half e % 2 of the receiver's
// packet area. Two halves are enough. A rank that sends in epoch e + 2 has ended
// e + 1, so it has a packet of e + 1 from the receiver. The receiver sent that after
// it had ended e, so it no longer reads the half. A collective in which some rank may
// receive nothing from another one breaks this argument, and uses pipes.
//
// Flags. Of an epoch only 31 bits fit into a packet, so a slot that was not
// written for 2^31 epochs would hold a flag that is right again, and old data.
// Long before, every 2^30 epochs, a rank clears its half for the next epoch. No
// peer writes there before this rank has sent in this one.
#ifndef MSCCLPP_COLLECTIVES_PACKETS_H_
#define MSCCLPP_COLLECTIVES_PACKETS_H_

#include "links.h"

namespace mscclpp {
namespace collectives {

constexpr uint64_t kClearEvery = 1ull << 30;

// The flag of an epoch is never 0, and comes again after 2^31 epochs.
MSCCLPP_DEVICE uint32_t flag_of(uint64_t epoch) { return static_cast<uint32_t>(epoch) | 0x80000000u; }

// Whether the half for epoch + 1 has to be cleared in this one.
MSCCLPP_DEVICE bool clears(uint64_t epoch) { return (static_cast<uint32_t>(epoch) & (kClearEvery - 1)) < 2 && epoch >= kClearEvery; }

// A launch takes all its epochs when it begins, from one word for each area. Packets and
// lines lie in different areas, because the flag of a line would be payload to a packet. With
// each epoch the word grows by kEpoch. All blocks but the last add 1, and the last block of a
// launch adds the rest. The rest is larger than all other parts together, so every block sees
// from the word that it finds whether the last block was there before.
enum Area : uint32_t { kPacketArea = 0, kLineArea = 1, kLamportArea = 2 };
constexpr uint64_t kEpoch = 4 * kMaxBlocks;

// The word of packets without a flag is in the line of that of lines.
MSCCLPP_DEVICE uint64_t* epoch_word(State* state, Area area) {
  return area == kLamportArea ? &state->epochs[kLineArea][8] : &state->epochs[area][0];
}

// take_epochs returns the last epoch before the n that this launch has; for whole blocks,
// once a launch. It may be called before await_previous, while earlier kernels run, if
// each of those that takes epochs calls release_next behind it. Launches begin in their order, so
// an earlier kernel has added its part before a block of this one looks. A count that kernels write
// when they end would have to be waited for and read, which takes 0.4 µs longer.
MSCCLPP_DEVICE uint64_t take_epochs(State* state, Area area, uint64_t n) {
  if (n == 0) return 0;
  const uint64_t others = grid_dim() - 1;
  uint64_t epoch = 0;
  if (thread_id() == 0) {
    const uint64_t word = fetch_add_relaxed_device(epoch_word(state, area), block_id() < others ? 1 : n * kEpoch - others);
    epoch = word / kEpoch - (word % kEpoch >= kEpoch - others ? n - 1 : 0);
  }
  return block_share(epoch);
}

// Epochs goes through the epochs of one launch: one for each piece of data that
// fits into a slot.
class Epochs {
 public:
  MSCCLPP_DEVICE Epochs(const Common& c, uint64_t pieces) : c_(c), epoch_(take_epochs(c.state, kPacketArea, pieces)) {}

  // next begins an epoch. All blocks call it; between two of a launch it waits
  // for all blocks of this rank to end the first.
  MSCCLPP_DEVICE bool next() {
    if (steps_ > 0 && !blocks_sync(c_.state, c_.control)) return false;
    ++steps_;
    ++epoch_;
    if (clears(epoch_)) return clear();
    return true;
  }

  MSCCLPP_DEVICE uint32_t flag() const { return flag_of(epoch_); }

  // slot is where packets from `from` go in the memory of `to`.
  MSCCLPP_DEVICE char* slot(uint32_t to, uint32_t from) const {
    return reinterpret_cast<char*>(c_.scratch[to]) + c_.packets + (epoch_ & 1) * c_.packet_half + from * slot_bytes(c_);
  }
  MSCCLPP_DEVICE static uint64_t slot_bytes(const Common& c) { return c.packet_half / c.ranks / 64 * 64; }

 private:
  MSCCLPP_DEVICE bool clear() {
    char* other = reinterpret_cast<char*>(c_.scratch[c_.rank]) + c_.packets + ((epoch_ + 1) & 1) * c_.packet_half;
    for (uint64_t i = global_thread(); i < c_.packet_half / 16; i += global_threads()) store16_packet(other + i * 16, Vec16{0, 0, 0, 0});
    fence_system();  // before anything that this rank sends
    return blocks_sync(c_.state, c_.control);
  }

  const Common& c_;
  uint64_t epoch_;
  uint32_t steps_ = 0;
};

MSCCLPP_DEVICE WaitSite packet_site(const Common& c, uint32_t peer, uint32_t flag) {
  return WaitSite{kernel_of(c.signature), kWordPacket, peer, flag, &c.state->left};
}

// Payload is divided among threads in units. The thread that sends a unit also stores
// to the same place of the output later, so that input and output may be one buffer.
// A unit is whole packets and whole elements. On a CPU it is large enough for the
// vector loops to pay off.
#if MSCCLPP_TARGET_CPU
constexpr uint32_t kUnit = 1024;
#else
constexpr uint32_t kUnit = 8;
#endif

template <class Packet>
MSCCLPP_OUTLINED_LARGE void send_packets(char* slot, const char* data, uint64_t bytes, uint32_t flag) {
#if MSCCLPP_TARGET_CPU
  copyToPackets<Packet>(slot, data, bytes, 0, 1, flag);
  MSCCLPP_DID(kRecordPackets, bytes)
#else
  for (uint64_t at = uint64_t(global_thread()) * kUnit; at < bytes; at += uint64_t(global_threads()) * kUnit) {
    copyToPackets<Packet>(slot + 2 * at, data + at, smaller(kUnit, bytes - at), 0, 1, flag);
  }
#endif
}

template <class Packet>
MSCCLPP_OUTLINED_LARGE bool unpack(const WaitControl* control, uint32_t* left, uint32_t kernel, char* out, const char* slot, uint64_t bytes,
                                   uint32_t flag, uint32_t peer) {
  const WaitSite site{kernel, kWordPacket, peer, flag, left};
#if MSCCLPP_TARGET_CPU
  const bool ok = copyFromPackets<Packet>(out, slot, bytes, 0, 1, flag, control, site);
  MSCCLPP_DID(kRecordPackets, bytes)
  return ok;
#else
  for (uint64_t at = uint64_t(global_thread()) * kUnit; at < bytes; at += uint64_t(global_threads()) * kUnit) {
    if (!copyFromPackets<Packet>(out + at, slot + 2 * at, smaller(kUnit, bytes - at), 0, 1, flag, control, site)) return false;
  }
  return true;
#endif
}

// receive_packets stores the data that peer sent.
template <class Packet>
MSCCLPP_DEVICE bool receive_packets(const Common& c, char* out, const char* slot, uint64_t bytes, uint32_t flag, uint32_t peer) {
  return unpack<Packet>(c.control, &c.state->left, kernel_of(c.signature), out, slot, bytes, flag, peer);
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_PACKETS_H_
