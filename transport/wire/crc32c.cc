#include "transport/wire/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace gloo_bypass {
namespace {

constexpr std::uint32_t kReversedPolynomial = 0x82f63b78u;

// Slicing by 8: table k gives the effect of a byte that k more bytes follow.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables makeTables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReversedPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = makeTables();

#if defined(__x86_64__)
// The instruction takes three cycles and can start every cycle, so three stretches of a buffer are worked on at once. 128
// bytes each: three such blocks fit a datagram of 1,500 bytes, and putting the three together costs a tenth of the work.
constexpr std::size_t kStretchBytes = 128;

// Table k, byte b: what b << 8k becomes when kStretchBytes zero bytes follow. The map is linear: bits add up.
constexpr std::array<std::array<std::uint32_t, 256>, 4> makeShiftTables() {
  std::array<std::uint32_t, 32> bits{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    std::uint32_t crc = 1u << bit;
    for (std::size_t i = 0; i < kStretchBytes; ++i) crc = (crc >> 8) ^ kTables[0][crc & 0xff];
    bits[bit] = crc;
  }
  std::array<std::array<std::uint32_t, 256>, 4> tables{};
  for (std::size_t k = 0; k < 4; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      for (std::size_t bit = 0; bit < 8; ++bit) {
        if ((byte >> bit & 1) != 0) tables[k][byte] ^= bits[8 * k + bit];
      }
    }
  }
  return tables;
}

constexpr auto kShiftTables = makeShiftTables();

inline std::uint32_t shiftStretch(std::uint64_t crc) {
  return kShiftTables[0][crc & 0xff] ^ kShiftTables[1][crc >> 8 & 0xff] ^ kShiftTables[2][crc >> 16 & 0xff] ^
         kShiftTables[3][crc >> 24 & 0xff];
}

inline std::uint64_t loadWord(const std::byte* p) {
  std::uint64_t word;
  std::memcpy(&word, p, 8);
  return word;
}

__attribute__((target("sse4.2"))) std::uint32_t crc32cHardware(std::span<const std::byte> bytes,
                                                              std::uint32_t previous) {
  const std::byte* p = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t crc = ~previous;
  for (; left >= 3 * kStretchBytes; left -= 3 * kStretchBytes, p += 3 * kStretchBytes) {
    std::uint64_t second = 0, third = 0;
    for (std::size_t i = 0; i < kStretchBytes; i += 8) {
      crc = _mm_crc32_u64(crc, loadWord(p + i));
      second = _mm_crc32_u64(second, loadWord(p + kStretchBytes + i));
      third = _mm_crc32_u64(third, loadWord(p + 2 * kStretchBytes + i));
    }
    crc = shiftStretch(shiftStretch(crc) ^ second) ^ third;
  }
  for (; left >= 8; left -= 8, p += 8) crc = _mm_crc32_u64(crc, loadWord(p));
  auto crc32 = static_cast<std::uint32_t>(crc);
  if (left >= 4) {
    std::uint32_t word;
    std::memcpy(&word, p, 4);
    crc32 = _mm_crc32_u32(crc32, word);
    left -= 4;
    p += 4;
  }
  for (; left > 0; --left, ++p) crc32 = _mm_crc32_u8(crc32, static_cast<unsigned char>(*p));
  return ~crc32;
}
#endif

using Function = std::uint32_t (*)(std::span<const std::byte>, std::uint32_t);

Function choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return crc32cHardware;
#endif
  return crc32cPortable;
}

const Function kChosen = choose();

}  // namespace

std::uint32_t crc32cPortable(std::span<const std::byte> bytes, std::uint32_t previous) {
  const std::byte* p = bytes.data();
  std::size_t left = bytes.size();
  std::uint32_t crc = ~previous;
  const auto byteAt = [&p](std::size_t i) { return static_cast<std::uint32_t>(p[i]); };
  for (; left >= 8; left -= 8, p += 8) {
    crc ^= byteAt(0) | byteAt(1) << 8 | byteAt(2) << 16 | byteAt(3) << 24;
    crc = kTables[7][crc & 0xff] ^ kTables[6][(crc >> 8) & 0xff] ^ kTables[5][(crc >> 16) & 0xff] ^
          kTables[4][crc >> 24] ^ kTables[3][byteAt(4)] ^ kTables[2][byteAt(5)] ^ kTables[1][byteAt(6)] ^
          kTables[0][byteAt(7)];
  }
  for (; left > 0; --left, ++p) crc = (crc >> 8) ^ kTables[0][(crc ^ byteAt(0)) & 0xff];
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) { return kChosen(bytes, previous); }

}  // namespace gloo_bypass
