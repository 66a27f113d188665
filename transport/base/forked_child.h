// Descriptors that a forked child must not keep: a peer takes their end for the end of this process, and a child, a
// data loader's for one, may outlive it. Any thread.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace gloo_bypass::forked_child {

// A bit each. Children keep those above.
inline constexpr int kMostDescriptors = 65'536;
inline std::array<std::atomic<std::uint64_t>, kMostDescriptors / 64> left{};

inline void leave(int fd) {
  if (fd < kMostDescriptors) left[static_cast<std::size_t>(fd) / 64].fetch_or(std::uint64_t{1} << fd % 64);
}
inline void keep(int fd) {
  if (fd >= kMostDescriptors) return;
  std::atomic<std::uint64_t>& word = left[static_cast<std::size_t>(fd) / 64];
  const std::uint64_t bit = std::uint64_t{1} << fd % 64;
  if ((word.load(std::memory_order_relaxed) & bit) != 0) word.fetch_and(~bit);
}

// How many forks this process comes from, that it was told of. Objects made before the last one are the parent's: what
// they share with peers is not this process' to touch.
inline std::atomic<int> forks{0};

// In the child, right after the fork. Async-signal-safe. The numbers stay taken, by /dev/null: objects of the parent's
// still have them, and would close what the child opens under them.
inline void giveFree() {
  forks.fetch_add(1, std::memory_order_relaxed);
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (std::size_t i = 0; i < left.size(); ++i) {
    for (std::uint64_t word = left[i].exchange(0); word != 0; word &= word - 1) {
      const int fd = static_cast<int>(i) * 64 + std::countr_zero(word);
      if (nothing < 0 || ::dup3(nothing, fd, O_CLOEXEC) < 0) ::close(fd);
    }
  }
  if (nothing >= 0) ::close(nothing);
}

}  // namespace gloo_bypass::forked_child
