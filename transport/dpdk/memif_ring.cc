#include "transport/dpdk/memif_ring.h"

#include <algorithm>
#include <atomic>

#include "transport/base/check.h"

namespace gloo_bypass::dpdk {
namespace {

// Offsets in memif_desc_t.
constexpr std::size_t kAtFlags = 0, kAtBufferRegion = 2;
constexpr std::uint16_t kChained = 1;

// Covers the headers of a frame.
constexpr std::size_t kPrefetchBytes = 4 * RTE_CACHE_LINE_SIZE;

// In shared memory: one access each, of a size that no compiler splits or repeats.
template <typename T>
T load(std::byte* at, std::memory_order order = std::memory_order_relaxed) {
  return std::atomic_ref<T>(*reinterpret_cast<T*>(at)).load(order);
}
template <typename T>
void store(std::byte* at, T value, std::memory_order order = std::memory_order_relaxed) {
  std::atomic_ref<T>(*reinterpret_cast<T*>(at)).store(value, order);
}

}  // namespace

bool MemifRing::attach() {
  ring_ = memory_.ring(toServer_);
  return ring_ != nullptr;
}

std::optional<std::size_t> MemifRing::distanceTo(std::size_t at, bool behind) const {
  const auto counter = load<std::uint16_t>(ring_ + at, std::memory_order_acquire);
  const auto distance = static_cast<std::uint16_t>(behind ? next_ - counter : counter - next_);
  if (distance > slots()) return std::nullopt;
  return distance;
}

std::byte* MemifRing::descriptor(std::uint16_t position) const {
  return ring_ + kMemifDescriptorsAt + kMemifDescriptorBytes * (position & mask_);
}

bool MemifReceiveRing::start() {
  if (!attach()) return false;
  // It was offered already, but a server with DPDK's driver takes it back when it connects.
  if (!toServer_) {
    store(ring_ + kMemifHeadAt, static_cast<std::uint16_t>(slots()), std::memory_order_release);
  }
  return true;
}

std::optional<std::size_t> MemifReceiveRing::waiting() const {
  return distanceTo(toServer_ ? kMemifHeadAt : kMemifTailAt, /*behind=*/false);
}

std::span<const std::byte> MemifReceiveRing::frame(std::size_t index) const {
  std::byte* const d = descriptor(static_cast<std::uint16_t>(next_ + index));
  const std::size_t length = load<std::uint32_t>(d + kMemifLengthAt);
  const std::size_t offset = load<std::uint32_t>(d + kMemifOffsetAt);
  if ((load<std::uint16_t>(d + kAtFlags) & kChained) != 0 || load<std::uint16_t>(d + kAtBufferRegion) != 0 ||
      length > memory_.shape().bufferBytes) {
    return {};
  }
  return memory_.part(offset, length);
}

void MemifReceiveRing::prefetch(std::size_t index) const {
  const std::span<const std::byte> bytes = frame(index);
  const std::size_t end = std::min(bytes.size(), kPrefetchBytes);
  for (std::size_t at = 0; at < end; at += RTE_CACHE_LINE_SIZE) __builtin_prefetch(&bytes[at]);
}

void MemifReceiveRing::release(std::size_t count) {
  GLOO_BYPASS_CHECK(count <= slots());
  const auto end = static_cast<std::uint16_t>(next_ + count);
  if (toServer_) {
    store(ring_ + kMemifTailAt, end, std::memory_order_release);
  } else {
    for (std::uint16_t position = next_; position != end; ++position) {
      store(descriptor(position) + kMemifLengthAt, static_cast<std::uint32_t>(memory_.shape().bufferBytes));
    }
    store(ring_ + kMemifHeadAt, static_cast<std::uint16_t>(end + slots()), std::memory_order_release);
  }
  next_ = end;
}

void MemifReceiveRing::askForEvents(bool wanted) {
  store(ring_ + kMemifRingFlagsAt, wanted ? std::uint16_t{0} : kMemifNoEvents);
  // Before the caller looks at the ring once more.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

std::optional<std::size_t> MemifSendRing::room() const {
  if (!toServer_) return distanceTo(kMemifHeadAt, /*behind=*/false);
  const std::optional<std::size_t> filled = distanceTo(kMemifTailAt, /*behind=*/true);
  if (!filled) return std::nullopt;
  return slots() - *filled;
}

std::span<std::byte> MemifSendRing::slot() const {
  std::byte* const d = descriptor(next_);
  if (load<std::uint16_t>(d + kAtBufferRegion) != 0) return {};
  return memory_.part(load<std::uint32_t>(d + kMemifOffsetAt), memory_.shape().bufferBytes);
}

void MemifSendRing::push(std::size_t bytes) {
  GLOO_BYPASS_CHECK(bytes <= memory_.shape().bufferBytes);
  std::byte* const d = descriptor(next_);
  store(d + kAtFlags, std::uint16_t{0});
  store(d + kMemifLengthAt, static_cast<std::uint32_t>(bytes));
  ++next_;
}

void MemifSendRing::publish() {
  store(ring_ + (toServer_ ? kMemifHeadAt : kMemifTailAt), next_, std::memory_order_release);
}

}  // namespace gloo_bypass::dpdk
