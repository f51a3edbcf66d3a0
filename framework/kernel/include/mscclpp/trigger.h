// The fields of a trigger, which is a request of two words to a proxy (docs/plugin-protocol.md): this
// file alone knows where they lie. It is for kernels, and for C and C++ on the host. kernel.Trigger is
// the counterpart in Go; a test compares both with the triggers that kernels push. Bit 63 of the second
// word belongs to the ring.
#ifndef MSCCLPP_TRIGGER_H_
#define MSCCLPP_TRIGGER_H_

#include <stdint.h>

// Compilers for GPUs need to know that kernels call these functions too.
#if (defined(__CUDA__) || defined(__HIP__)) && defined(__clang__)
#define MSCCLPP_TRIGGER_FIELD __attribute__((host, device)) inline __attribute__((always_inline))
#elif defined(__CUDACC__)
#define MSCCLPP_TRIGGER_FIELD __host__ __device__ __forceinline__
#else
#define MSCCLPP_TRIGGER_FIELD static inline
#endif

// Packing: the first word is bytes | from, the second one to | src | dst | kind | slot. Fields that do not
// apply are left out. A field that is too large is cut off.
MSCCLPP_TRIGGER_FIELD uint64_t mscclpp_trigger_pack_bytes(uint64_t bytes) { return bytes & 0xffffffffu; }
MSCCLPP_TRIGGER_FIELD uint64_t mscclpp_trigger_pack_from(uint64_t offset) { return offset << 32; }
MSCCLPP_TRIGGER_FIELD uint64_t mscclpp_trigger_pack_to(uint64_t offset) { return offset & 0xffffffffu; }
MSCCLPP_TRIGGER_FIELD uint64_t mscclpp_trigger_pack_src(uint32_t memory) { return (uint64_t)(memory & 0x1ffu) << 32; }
MSCCLPP_TRIGGER_FIELD uint64_t mscclpp_trigger_pack_dst(uint32_t memory) { return (uint64_t)(memory & 0x1ffu) << 41; }
MSCCLPP_TRIGGER_FIELD uint64_t mscclpp_trigger_pack_kind(uint32_t kind) { return (uint64_t)(kind & 7u) << 50; }
MSCCLPP_TRIGGER_FIELD uint64_t mscclpp_trigger_pack_slot(uint32_t semaphore) { return (uint64_t)(semaphore & 0x3ffu) << 53; }

// Reading.
MSCCLPP_TRIGGER_FIELD uint64_t mscclpp_trigger_bytes(uint64_t fst) { return fst & 0xffffffffu; }
MSCCLPP_TRIGGER_FIELD uint64_t mscclpp_trigger_from(uint64_t fst) { return fst >> 32; }
MSCCLPP_TRIGGER_FIELD uint64_t mscclpp_trigger_to(uint64_t snd) { return snd & 0xffffffffu; }
MSCCLPP_TRIGGER_FIELD uint32_t mscclpp_trigger_src(uint64_t snd) { return (uint32_t)(snd >> 32) & 0x1ff; }
MSCCLPP_TRIGGER_FIELD uint32_t mscclpp_trigger_dst(uint64_t snd) { return (uint32_t)(snd >> 41) & 0x1ff; }
MSCCLPP_TRIGGER_FIELD uint32_t mscclpp_trigger_kind(uint64_t snd) { return (uint32_t)(snd >> 50) & 7; }
MSCCLPP_TRIGGER_FIELD uint32_t mscclpp_trigger_slot(uint64_t snd) { return (uint32_t)(snd >> 53) & 0x3ff; }

#endif
