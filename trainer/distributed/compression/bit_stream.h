// Codes of a few bits each, one after the other, the lowest bit first.
#pragma once

#include <cstddef>
#include <cstdint>
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
    for (count_ += width; count_ >= 8; count_ -= 8, held_ >>= 8) bytes_[at_++] = static_cast<std::byte>(held_);
  }
  // Once, after the last one.
  void finish() {
    if (count_ > 0) bytes_[at_] = static_cast<std::byte>(held_);
  }

 private:
  std::span<std::byte> bytes_;
  std::size_t at_ = 0;
  uint64_t held_ = 0;
  unsigned count_ = 0;  // bits held, below 8 between calls
};

class BitReader {
 public:
  explicit BitReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  // Zeros after the end.
  uint32_t take(unsigned width) {
    for (; count_ < width; count_ += 8) {
      if (at_ < bytes_.size()) held_ |= uint64_t{std::to_integer<uint8_t>(bytes_[at_])} << count_;
      ++at_;
    }
    const auto code = static_cast<uint32_t>(held_ & ((uint64_t{1} << width) - 1));
    held_ >>= width;
    count_ -= width;
    return code;
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  uint64_t held_ = 0;
  unsigned count_ = 0;
};

}  // namespace gloo_bypass::trainer
