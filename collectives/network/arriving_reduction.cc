#include "collectives/network/arriving_reduction.h"

#include <algorithm>
#include <cstring>

#include "collectives/reduce.h"

namespace gloo_bypass::collectives {
namespace {

// The next run follows in memory, as in transport/base/copy_part.h.
void prefetchBehind(const std::byte* begin, std::size_t bytes) {
  constexpr std::size_t kLong = 16'384, kAhead = 2048, kCacheLine = 64;
  if (bytes >= kLong) return;
  const auto ahead = reinterpret_cast<std::uintptr_t>(begin) + kAhead;
  for (std::size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(reinterpret_cast<const void*>(ahead + at));
}

}  // namespace

BytesConsumer ArrivingReduction::begin(const Sum& sum) {
  sum_ = sum;
  elementBytes_ = sizeOf(sum.type);
  gathered_.clear();
  return {[](void* self, std::size_t offset, std::span<const std::byte> bytes) noexcept {
            static_cast<ArrivingReduction*>(self)->take(offset, bytes);
          },
          this};
}

void ArrivingReduction::take(std::size_t offset, std::span<const std::byte> bytes) {
  // The end of an element that began in another run, whole elements, the beginning of one.
  const std::size_t head = std::min((elementBytes_ - offset % elementBytes_) % elementBytes_, bytes.size());
  if (head > 0) gather(offset, bytes.first(head));
  const std::size_t tail = (bytes.size() - head) % elementBytes_;
  const std::size_t whole = bytes.size() - head - tail;
  if (whole > 0) reduceElements(offset + head, bytes.data() + head, whole / elementBytes_);
  if (tail > 0) gather(offset + head + whole, bytes.last(tail));
}

void ArrivingReduction::gather(std::size_t offset, std::span<const std::byte> bytes) {
  const std::uint64_t element = offset / elementBytes_;
  if (gathered_.size() >= kMostGathered && gathered_.find(element) == nullptr) return;
  Gathered& gathered = gathered_.at(element);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::size_t at = offset % elementBytes_ + i;
    gathered.bytes[at] = bytes[i];
    gathered.present = static_cast<std::uint8_t>(gathered.present | 1u << at);
  }
  if (gathered.present != (1u << elementBytes_) - 1) return;
  const auto whole = gathered.bytes;
  gathered_.eraseFound(&gathered);
  reduceElements(element * elementBytes_, whole.data(), 1);
}

void ArrivingReduction::reduceElements(std::size_t offset, const std::byte* arrived, std::size_t count) {
  const std::byte* const own = sum_.own + offset;
  prefetchBehind(own, count * elementBytes_);
  const std::byte* const inputs[] = {sum_.ownFirst ? own : arrived, sum_.ownFirst ? arrived : own};
  reduce(sum_.reduction, sum_.type, sum_.result + offset, inputs, count, sum_.ranks);
}

}  // namespace gloo_bypass::collectives
