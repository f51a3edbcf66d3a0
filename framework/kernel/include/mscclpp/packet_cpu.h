// The packet loops of the CPU, by hand: compilers do not find them. Each moves as
// many whole groups as it can and returns the bytes of payload moved.
#ifndef MSCCLPP_PACKET_CPU_H_
#define MSCCLPP_PACKET_CPU_H_

#include "target.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mscclpp {
namespace detail {

// LL8 and LL16 look alike in memory: data, flag, data, flag. They differ in what one
// poll covers, and a group covers more than either.
#if defined(__AVX512F__)
constexpr size_t kGroup = 32;
inline void pack_group(char* to, const char* from, uint32_t flag) {
  const __m512i wide = _mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  _mm512_storeu_si512(to, _mm512_or_si512(wide, _mm512_set1_epi64(static_cast<int64_t>(static_cast<uint64_t>(flag) << 32))));
}
inline bool unpack_group(char* to, const char* from, uint32_t flag) {
  __m512i v = _mm512_loadu_si512(from);
  asm("" : "+v"(v));  // one load: what was compared is what is stored
  if (_mm512_cmpneq_epu32_mask(v, _mm512_set1_epi32(static_cast<int>(flag))) & 0xaaaa) return false;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi64_epi32(v));
  return true;
}
#elif defined(__AVX2__)
constexpr size_t kGroup = 16;
inline void pack_group(char* to, const char* from, uint32_t flag) {
  const __m256i wide = _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  const __m256i flags = _mm256_set1_epi64x(static_cast<int64_t>(static_cast<uint64_t>(flag) << 32));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_or_si256(wide, flags));
}
inline bool unpack_group(char* to, const char* from, uint32_t flag) {
  __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  asm("" : "+x"(v));  // one load: what was compared is what is stored
  const int same = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(v, _mm256_set1_epi32(static_cast<int>(flag)))));
  if ((same & 0xaa) != 0xaa) return false;
  const __m256i packed = _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 2, 4, 6, 0, 0, 0, 0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
  return true;
}
#elif defined(__x86_64__)
constexpr size_t kGroup = 16;
inline void pack_group(char* to, const char* from, uint32_t flag) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  const __m128i flags = _mm_set1_epi32(static_cast<int>(flag));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_unpacklo_epi32(v, flags));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16), _mm_unpackhi_epi32(v, flags));
}
inline bool unpack_group(char* to, const char* from, uint32_t flag) {
  __m128 a = _mm_loadu_ps(reinterpret_cast<const float*>(from));
  __m128 b = _mm_loadu_ps(reinterpret_cast<const float*>(from + 16));
  asm("" : "+x"(a), "+x"(b));  // one load: what was compared is what is stored
  const __m128i flags = _mm_castps_si128(_mm_shuffle_ps(a, b, 0xdd));
  if (_mm_movemask_epi8(_mm_cmpeq_epi32(flags, _mm_set1_epi32(static_cast<int>(flag)))) != 0xffff) return false;
  _mm_storeu_ps(reinterpret_cast<float*>(to), _mm_shuffle_ps(a, b, 0x88));
  return true;
}
#else
constexpr size_t kGroup = 0;
#endif

template <size_t Packet>
inline size_t pack(void* dst, const void* src, size_t bytes, uint32_t flag) {
  size_t done = 0;
#if defined(__x86_64__)
  char* to = static_cast<char*>(dst);
  const char* from = static_cast<const char*>(src);
  for (; done + kGroup <= bytes; done += kGroup) pack_group(to + 2 * done, from + done, flag);
#else
  (void)dst, (void)src, (void)bytes, (void)flag;
#endif
  return done;
}

// Stops at the first group that has not arrived completely.
template <size_t Packet>
inline size_t unpack(void* dst, const void* src, size_t bytes, uint32_t flag) {
  size_t done = 0;
#if defined(__x86_64__)
  asm volatile("" : : : "memory");  // memory may have changed since the last look
  char* to = static_cast<char*>(dst);
  const char* from = static_cast<const char*>(src);
  for (; done + kGroup <= bytes; done += kGroup) {
    if (!unpack_group(to + done, from + 2 * done, flag)) break;
  }
#else
  (void)dst, (void)src, (void)bytes, (void)flag;
#endif
  return done;
}

}  // namespace detail
}  // namespace mscclpp
#endif  // MSCCLPP_PACKET_CPU_H_
