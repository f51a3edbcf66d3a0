// copy() for the CPU: the C library's memcpy, which is vectorized for the machine
// it runs on, and stores that bypass the cache for copies too large to be read from
// it.
#ifndef MSCCLPP_COPY_CPU_H_
#define MSCCLPP_COPY_CPU_H_

#include <string.h>

#include "records.h"
#include "target.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// From this size on a copy leaves the cache alone.
#ifndef MSCCLPP_STREAM_BYTES
#define MSCCLPP_STREAM_BYTES (8u << 20)
#endif

namespace mscclpp {
namespace detail {

#if defined(__x86_64__)
// bytes is a multiple of 64, dst is aligned to 64.
inline void copy_stream(char* dst, const char* src, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) {
    _mm_prefetch(src + i + 512, _MM_HINT_NTA);
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(dst + i), _mm512_loadu_si512(src + i));
#elif defined(__AVX__)
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + i));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + i + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(dst + i), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(dst + i + 32), b);
#else
    for (int k = 0; k < 64; k += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(dst + i + k),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i + k)));
    }
#endif
  }
  _mm_sfence();  // such stores are weakly ordered: a later signal must not overtake them
}
#endif

}  // namespace detail

namespace detail {

// copy without a record.
inline void move_bytes(void* dst, const void* src, size_t bytes, uint32_t tid, uint32_t nthreads) {
  char* d = static_cast<char*>(dst);
  const char* s = static_cast<const char*>(src);
  if (nthreads > 1) {
    const size_t piece = (bytes / nthreads + 63) & ~static_cast<size_t>(63);
    const size_t begin = piece * tid < bytes ? piece * tid : bytes;
    const size_t rest = bytes - begin;
    d += begin;
    s += begin;
    bytes = tid + 1 == nthreads || rest < piece ? rest : piece;
  }
  if (bytes == 0 || d == s) return;
#if defined(__x86_64__)
  if (bytes >= MSCCLPP_STREAM_BYTES) {
    const size_t lead = (64 - (reinterpret_cast<uintptr_t>(d) & 63)) & 63;
    memcpy(d, s, lead);
    const size_t body = (bytes - lead) & ~static_cast<size_t>(63);
    copy_stream(d + lead, s + lead, body);
    memcpy(d + lead + body, s + lead + body, bytes - lead - body);
    return;
  }
#endif
  memcpy(d, s, bytes);
}

}  // namespace detail

// Threads take consecutive pieces; with one thread that is all of it.
inline void copy(void* dst, const void* src, size_t bytes, uint32_t tid, uint32_t nthreads) {
  detail::move_bytes(dst, src, bytes, tid, nthreads);
  MSCCLPP_DID(kRecordCopy, bytes)
}

}  // namespace mscclpp
#endif  // MSCCLPP_COPY_CPU_H_
