// What a trigger says: requests to a proxy, of two words (docs/plugin-protocol.md). For C
// and C++ on the host; kernel.Trigger is the counterpart in Go, and a test compares both with
// what kernels push. Bit 63 of the second word belongs to the ring.
#ifndef MSCCLPP_TRIGGER_H_
#define MSCCLPP_TRIGGER_H_

#include <stdint.h>

static inline uint64_t mscclpp_trigger_bytes(uint64_t fst) { return fst & 0xffffffffu; }
static inline uint64_t mscclpp_trigger_from(uint64_t fst) { return fst >> 32; }
static inline uint64_t mscclpp_trigger_to(uint64_t snd) { return snd & 0xffffffffu; }
static inline uint32_t mscclpp_trigger_src(uint64_t snd) { return (uint32_t)(snd >> 32) & 0x1ff; }
static inline uint32_t mscclpp_trigger_dst(uint64_t snd) { return (uint32_t)(snd >> 41) & 0x1ff; }
static inline uint32_t mscclpp_trigger_kind(uint64_t snd) { return (uint32_t)(snd >> 50) & 7; }
static inline uint32_t mscclpp_trigger_slot(uint64_t snd) { return (uint32_t)(snd >> 53) & 0x3ff; }

#endif
