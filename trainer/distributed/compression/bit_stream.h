// Codes of a few bits each, one after the other, the lowest bit first.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace gloo_bypass::trainer {

constexpr int64_t bytesOfBits(int64_t bits) { return (bits + 7) / 8; }

class BitWriter {
 public:
  // `bytes` must hold all that is put, and outlive it.
  explicit BitWriter(std::span<std::byte> bytes) : bytes_(bytes) {}
  // The low `width` bits of the code; width at most 32.
  void put(uint32_t code, unsigned width) {
    held_ |= uint64_t{code} << count_;
    count_ += width;
    if (count_ < kWordBits) return;
    const auto word = static_cast<uint32_t>(held_);
    std::memcpy(&bytes_[at_], &word, sizeof word);
    at_ += sizeof word;
    held_ >>= kWordBits;
    count_ -= kWordBits;
  }
  // Once, after the last one.
  void finish() {
    for (; count_ > 0; count_ -= std::min(count_, 8u), held_ >>= 8) bytes_[at_++] = static_cast<std::byte>(held_);
  }

 private:
  static_assert(std::endian::native == std::endian::little);
  static constexpr unsigned kWordBits = 32;

  std::span<std::byte> bytes_;
  std::size_t at_ = 0;
  uint64_t held_ = 0;
  unsigned count_ = 0;  // bits held, below 32 between calls
};

// The code at `index`, where each has `width` bits, at most 32. After the end there are zeros.
inline uint32_t codeAt(std::span<const std::byte> bytes, std::size_t index, unsigned width) {
  const std::size_t bit = index * width, at = bit / 8;
  uint64_t word = 0;
  const std::size_t left = at < bytes.size() ? bytes.size() - at : 0;
  if (left >= sizeof word) {
    std::memcpy(&word, &bytes[at], sizeof word);
  } else if (left > 0) {
    std::memcpy(&word, &bytes[at], left);
  }
  return static_cast<uint32_t>(word >> bit % 8 & ((uint64_t{1} << width) - 1));
}

}  // namespace gloo_bypass::trainer
