// Reduces a message with this rank's own values while it arrives, in runs of bytes in any order. An element whose bytes
// come in several runs is gathered first. Pure. Bits: as reduce() of the two.
//
// A peer that sends bytes twice or leaves some out spoils values of the result, no more. So does one that cuts more
// elements than any path does: kMostGathered are kept, the bytes of others are dropped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/operation.h"
#include "transport/base/flat_map.h"
#include "transport/channel/message.h"

namespace gloo_bypass::collectives {

class ArrivingReduction {
 public:
  struct Sum {
    Reduction reduction = Reduction::kSum;
    ElementType type = ElementType::kFloat32;
    int ranks = 1;                   // as reduce()'s
    const std::byte* own = nullptr;  // each as long as the message
    bool ownFirst = false;           // own op arriving; else arriving op own
    std::byte* result = nullptr;     // may be `own`, or where the message landed
  };
  // Before the message's receive is posted; this object stays where it is until that has ended.
  BytesConsumer begin(const Sum& sum);

  // `bytes` lie in the message from `offset` on.
  void take(std::size_t offset, std::span<const std::byte> bytes);

 private:
  static constexpr std::size_t kMostElementBytes = 8;
  static constexpr std::size_t kMostGathered = 8192;  // runs of 130 bytes in 1 MiB, all out of order
  struct Gathered {
    std::array<std::byte, kMostElementBytes> bytes{};
    std::uint8_t present = 0;  // a bit for each byte
  };
  void gather(std::size_t offset, std::span<const std::byte> bytes);
  void reduceElements(std::size_t offset, const std::byte* arrived, std::size_t count);

  Sum sum_;
  std::size_t elementBytes_ = 1;
  FlatMap<std::uint64_t, Gathered> gathered_;  // by element
};

}  // namespace gloo_bypass::collectives
