// Descriptors that a forked child must not keep. A peer takes their end for the end of this process, and a child, such
// as a data loader's worker, may outlive it. Any thread.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace gloo_bypass::forked_child {

// One bit each. Children keep descriptors above.
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

// How many forks this process has gone through since the handler was registered. Objects made before the last fork are
// the parent's: this process must not touch what they share with peers.
inline std::atomic<int> forks{0};

// In the child, right after the fork. Async-signal-safe. Opens /dev/null under each number: the parent's objects still
// hold these numbers, and would close whatever the child opened under them.
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
