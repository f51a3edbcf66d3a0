// Reductions of data that arrives as packets.
#ifndef MSCCLPP_COLLECTIVES_REDUCE_UNITS_H_
#define MSCCLPP_COLLECTIVES_REDUCE_UNITS_H_

#include "packets.h"

namespace mscclpp {
namespace collectives {

// reduce_units reduces bytes of own data with what every peer sent, in rank order,
// into out. slot_of(peer) is where a peer's packets lie; done(at, bytes) is called
// for each piece of out that is complete, by the thread that wrote it.
template <class T, class Packet, class SlotOf, class Done>
MSCCLPP_DEVICE bool reduce_units(const Args& a, char* out, const char* own, uint64_t bytes, uint32_t flag, SlotOf slot_of, Done done) {
  const Common& c = a.common;
  const Reduction r = reduction_of(a);
  for (uint64_t at = uint64_t(global_thread()) * kUnit; at < bytes; at += uint64_t(global_threads()) * kUnit) {
    const uint64_t n = smaller(kUnit, bytes - at);
    const auto input = [&](uint32_t i) MSCCLPP_LAMBDA -> const char* { return i == c.rank ? own + at : slot_of(i) + 2 * at; };
    if (!mscclpp::reduce_packets<T, Packet>(out + at, input, c.rank, c.ranks, n / sizeof(T), r, flag, c.control, packet_site(c, 0, flag), 0, 1)) {
      return false;
    }
    done(at, n);
  }
  MSCCLPP_DID(kRecordReduce, bytes)
  return true;
}

}  // namespace collectives
}  // namespace mscclpp
#endif  // MSCCLPP_COLLECTIVES_REDUCE_UNITS_H_
