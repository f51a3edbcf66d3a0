// The instructions of tensor cores and of shared memory that C++ has no words for. An
// address of shared memory is a number of 32 bits.
#ifndef FUSED_INSTRUCTIONS_H_
#define FUSED_INSTRUCTIONS_H_

#include <mscclpp/device.h>

namespace fused {
namespace tensor {

// The block's shared memory.
template <uint32_t Bytes>
MSCCLPP_DEVICE uint32_t shared_memory() {
  static __attribute__((shared, aligned(128))) char memory[Bytes];
  uint32_t address;
  asm("{ .reg .u64 p; cvta.to.shared.u64 p, %1; cvt.u32.u64 %0, p; }" : "=r"(address) : "l"(memory));
  return address;
}

// Copies go in groups, each of which a commit ends; arrived<N> waits for all but the
// last N groups of this thread.
MSCCLPP_DEVICE void copy16(uint32_t to, const char* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(to), "l"(from) : "memory");
}
MSCCLPP_DEVICE void commit() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int N>
MSCCLPP_DEVICE void arrived() { asm volatile("cp.async.wait_group %0;" : : "n"(N) : "memory"); }

// Four matrices of 8 x 8, of which lanes 0 to 7, 8 to 15 and so on give the addresses of
// the rows. Lane l gets of each the elements 2 * (l % 4) and the next of row l / 4.
MSCCLPP_DEVICE void load4(uint32_t (&r)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
// d += a times the transposed b: a is 16 x 16, in the order of load4 left above, left
// below, right above, right below; b is 8 x 16, left and right.
MSCCLPP_DEVICE void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
MSCCLPP_DEVICE uint32_t narrow2(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
MSCCLPP_DEVICE void put4(uint32_t to, uint32_t v) { asm volatile("st.shared.u32 [%0], %1;" : : "r"(to), "r"(v) : "memory"); }
MSCCLPP_DEVICE mscclpp::Vec16 get16(uint32_t from) {
  mscclpp::Vec16 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
  return v;
}

}  // namespace tensor
}  // namespace fused

#endif
