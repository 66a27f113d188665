// A window of bits over 64-bit sequence numbers, in a power-of-two ring of words that grows up to a bound. Bits outside
// the window read as 0. The receiver marks what has arrived in it, the sender what has been acknowledged.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/base/sequence.h"

namespace gloo_bypass {

class BitRing {
 public:
  explicit BitRing(std::uint64_t base) : base_(base), words_(kMinimumWords) {}

  std::uint64_t base() const { return base_; }
  std::size_t memoryBytes() const { return words_.size() * 8; }

  bool test(std::uint64_t n) const {
    return n >= base_ && n - base_ < span() && (words_[index(n)] >> (n % 64) & 1) != 0;
  }
  // `n` >= base(). The caller bounds n - base().
  void set(std::uint64_t n) {
    if (n - base_ >= span()) grow(n - base_ + 1);
    words_[index(n)] |= 1ull << (n % 64);
  }
  // Moves the window's beginning to `base`, clearing what falls out.
  void advance(std::uint64_t base) {
    while (base_ < base) {
      if (base_ % 64 == 0 && base - base_ >= 64) {
        words_[index(base_)] = 0;
        base_ += 64;
      } else {
        words_[index(base_)] &= ~(1ull << (base_ % 64));
        ++base_;
      }
    }
  }
  // The first n in [from, limit) that has the bit `value`; `limit` if there is none. base() <= from.
  std::uint64_t findNext(std::uint64_t from, std::uint64_t limit, bool value) const {
    while (from < limit) {
      std::uint64_t word = wordOf(from);
      if (!value) word = ~word;
      word >>= from % 64;
      if (word != 0) {
        const std::uint64_t found = from + static_cast<unsigned>(std::countr_zero(word));
        return found < limit ? found : limit;
      }
      from = (from / 64 + 1) * 64;
    }
    return limit;
  }
  // The last n in [limit, from) that has the bit `value`, plus one; `limit` if there is none. base() <= limit <= from.
  std::uint64_t findPreviousEnd(std::uint64_t from, std::uint64_t limit, bool value) const {
    while (from > limit) {
      const std::uint64_t last = from - 1;
      std::uint64_t word = wordOf(last);
      if (!value) word = ~word;
      word <<= 63 - last % 64;
      if (word != 0) {
        const std::uint64_t end = from - static_cast<unsigned>(std::countl_zero(word));
        return end > limit ? end : limit;
      }
      from = last / 64 * 64;
    }
    return limit;
  }

 private:
  static constexpr std::size_t kMinimumWords = 4;
  // One word less than allocated: base() may lie in the middle of the first.
  std::uint64_t span() const { return (words_.size() - 1) * 64; }
  std::uint64_t wordOf(std::uint64_t n) const { return n / 64 - base_ / 64 < words_.size() ? words_[index(n)] : 0; }
  std::size_t index(std::uint64_t n) const { return (n / 64) & (words_.size() - 1); }
  void grow(std::uint64_t bits) {
    std::vector<std::uint64_t> words(ceilPowerOfTwo(bits / 64 + 2));
    for (std::size_t i = 0; i < words_.size(); ++i) {
      const std::uint64_t number = base_ / 64 + i;
      words[number & (words.size() - 1)] = words_[number & (words_.size() - 1)];
    }
    words_ = std::move(words);
  }

  std::uint64_t base_;
  std::vector<std::uint64_t> words_;
};

}  // namespace gloo_bypass
