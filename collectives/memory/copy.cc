#include "collectives/memory/copy.h"

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <limits>

namespace gloo_bypass::collectives {
namespace {

// Shorter copies find their lines in the caches of both.
const std::size_t kNonTemporalBytes = __builtin_cpu_is("amd") ? 16 * 1024 : std::numeric_limits<std::size_t>::max();

}  // namespace

void copyToPeers(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes < kNonTemporalBytes || reinterpret_cast<std::uintptr_t>(to) % 64 != 0) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  const std::size_t whole = bytes / 64 * 64;
  for (std::size_t i = 0; i < whole; i += 64) {
    for (std::size_t k = 0; k < 64; k += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i + k),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i + k)));
    }
  }
  if (whole < bytes) std::memcpy(to + whole, from + whole, bytes - whole);
}

void finishCopies() { _mm_sfence(); }

}  // namespace gloo_bypass::collectives
