// Which packet numbers have been opened: a window of bits below the highest one (RFC 6479: a ring of words, in which
// moving on clears whole words and shifts nothing). Pure.
//
// The number comes from whoever sent the datagram: ask mayBeNew() before the effort of opening it, and call accept()
// only once it proved authentic.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace gloo_bypass::security {

class ReplayWindow {
 public:
  // One word less than the ring has: the window's beginning may lie in the middle of a word. Datagrams that others have
  // overtaken by more are dropped, as if lost: at 10 Gbit/s and an MTU of 1500 it spans 19 ms of reordering.
  static constexpr std::size_t kWords = 256;
  static constexpr std::uint64_t kNumbers = (kWords - 1) * 64;

  // One above the highest number accepted; 0: none was.
  std::uint64_t next() const { return next_; }
  // Numbers below it are never accepted any more.
  std::uint64_t lowest() const { return next_ > kNumbers ? next_ - kNumbers : 0; }

  bool mayBeNew(std::uint64_t number) const {
    if (number >= next_) return number != UINT64_MAX;
    return number >= lowest() && (words_[index(number)] >> (number % 64) & 1) == 0;
  }
  // `number`: mayBeNew().
  void accept(std::uint64_t number) {
    if (number >= next_) {
      // The words from the one after the highest number's up to this one's held numbers that now are too old.
      const std::uint64_t begin = next_ == 0 ? 0 : (next_ - 1) / 64 + 1, end = number / 64;
      if (begin <= end) {
        const std::uint64_t cleared = std::min<std::uint64_t>(end - begin + 1, words_.size());
        for (std::uint64_t i = 0; i < cleared; ++i) words_[(end - i) % kWords] = 0;
      }
      next_ = number + 1;
    }
    words_[index(number)] |= std::uint64_t{1} << (number % 64);
  }

 private:
  static std::size_t index(std::uint64_t number) { return number / 64 % kWords; }

  std::uint64_t next_ = 0;
  std::array<std::uint64_t, kWords> words_{};
};

}  // namespace gloo_bypass::security
