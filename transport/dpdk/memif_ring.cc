#include "transport/dpdk/memif_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "transport/base/check.h"

namespace gloo_bypass {
namespace {

// Fields of memif_msg_t, which is packed and in the machine's byte order.
constexpr std::uint16_t kAddRegion = 4, kAddRing = 5;
constexpr std::size_t kAtType = 0;
constexpr std::size_t kAtRegionIndex = 2, kAtRegionBytes = 4;
constexpr std::size_t kAtRingFlags = 2, kAtRingIndex = 4, kAtRingRegion = 6, kAtRingOffset = 8, kAtRingLog2 = 12;
constexpr std::uint16_t kRingToServer = 1;

// memif_ring_t: head and tail, each in a cache line of its own; then the descriptors.
constexpr std::size_t kAtHead = 6, kAtTail = RTE_CACHE_LINE_SIZE, kAtDescriptors = 2 * RTE_CACHE_LINE_SIZE;
// memif_desc_t
constexpr std::size_t kDescriptorBytes = 16;
constexpr std::size_t kAtFlags = 0, kAtBufferRegion = 2, kAtLength = 4, kAtOffset = 8;
constexpr std::uint16_t kChained = 1;

// The headers of a frame.
constexpr std::size_t kPrefetchBytes = 4 * RTE_CACHE_LINE_SIZE;

template <typename T>
T field(std::span<const std::byte, kMemifMessageBytes> message, std::size_t at) {
  T value;
  std::memcpy(&value, &message[at], sizeof(T));
  return value;
}

// In shared memory: one access each, of a size that no compiler splits or repeats.
template <typename T>
T load(std::byte* at, std::memory_order order = std::memory_order_relaxed) {
  return std::atomic_ref<T>(*reinterpret_cast<T*>(at)).load(order);
}
template <typename T>
void store(std::byte* at, T value, std::memory_order order = std::memory_order_relaxed) {
  std::atomic_ref<T>(*reinterpret_cast<T*>(at)).store(value, order);
}

std::size_t ringBytes(const MemifRingShape& shape) { return kAtDescriptors + kDescriptorBytes * shape.slots(); }

// A file that can shrink would end us with SIGBUS.
bool isSealed(int fd, std::size_t bytes) {
  struct stat status {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && ::fstat(fd, &status) == 0 &&
         static_cast<std::uint64_t>(status.st_size) >= bytes;
}

}  // namespace

MemifReceiveRing::~MemifReceiveRing() {
  if (region_ != nullptr) ::munmap(region_, regionBytes_);
}

bool MemifReceiveRing::overhear(std::span<const std::byte, kMemifMessageBytes> message, int fd) {
  switch (field<std::uint16_t>(message, kAtType)) {
    case kAddRegion:
      return addRegion(message, fd);
    case kAddRing:
      return addRing(message);
    default:
      return true;
  }
}

bool MemifReceiveRing::addRegion(std::span<const std::byte, kMemifMessageBytes> message, int fd) {
  const std::size_t bytes = 2 * (ringBytes(shape_) + shape_.slots() * shape_.bufferBytes);
  if (region_ != nullptr || field<std::uint16_t>(message, kAtRegionIndex) != 0 ||
      field<std::uint64_t>(message, kAtRegionBytes) != bytes || !isSealed(fd, bytes)) {
    return false;
  }
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return false;
  region_ = static_cast<std::byte*>(address);
  regionBytes_ = bytes;
  return true;
}

bool MemifReceiveRing::addRing(std::span<const std::byte, kMemifMessageBytes> message) {
  const bool toServer = (field<std::uint16_t>(message, kAtRingFlags) & kRingToServer) != 0;
  const std::size_t offset = field<std::uint32_t>(message, kAtRingOffset);
  if (region_ == nullptr || field<std::uint16_t>(message, kAtRingIndex) != 0 ||
      field<std::uint16_t>(message, kAtRingRegion) != 0 ||
      field<std::uint8_t>(message, kAtRingLog2) != shape_.log2Slots || offset % kDescriptorBytes != 0 ||
      offset > regionBytes_ - ringBytes(shape_)) {
    return false;
  }
  if (toServer == (role_ == MemifRole::kServer)) ring_ = region_ + offset;
  return true;
}

bool MemifReceiveRing::start() {
  if (ring_ == nullptr) return false;
  // The buffers are described already; a server can send nothing before they are offered.
  if (role_ == MemifRole::kClient) {
    store(ring_ + kAtHead, static_cast<std::uint16_t>(shape_.slots()), std::memory_order_release);
  }
  return true;
}

std::optional<std::size_t> MemifReceiveRing::waiting() const {
  const auto end =
      load<std::uint16_t>(ring_ + (role_ == MemifRole::kServer ? kAtHead : kAtTail), std::memory_order_acquire);
  const auto count = static_cast<std::uint16_t>(end - next_);
  if (count > shape_.slots()) return std::nullopt;
  return count;
}

std::byte* MemifReceiveRing::descriptor(std::uint16_t position) const {
  return ring_ + kAtDescriptors + kDescriptorBytes * (position & (shape_.slots() - 1));
}

std::span<const std::byte> MemifReceiveRing::frame(std::size_t index) const {
  std::byte* const d = descriptor(static_cast<std::uint16_t>(next_ + index));
  const std::size_t length = load<std::uint32_t>(d + kAtLength);
  const std::size_t offset = load<std::uint32_t>(d + kAtOffset);
  if ((load<std::uint16_t>(d + kAtFlags) & kChained) != 0 || load<std::uint16_t>(d + kAtBufferRegion) != 0 ||
      length > shape_.bufferBytes || offset > regionBytes_ - length) {
    return {};
  }
  return {region_ + offset, length};
}

void MemifReceiveRing::prefetch(std::size_t index) const {
  const std::span<const std::byte> bytes = frame(index);
  const std::size_t end = std::min(bytes.size(), kPrefetchBytes);
  for (std::size_t at = 0; at < end; at += RTE_CACHE_LINE_SIZE) __builtin_prefetch(&bytes[at]);
}

void MemifReceiveRing::release(std::size_t count) {
  GLOO_BYPASS_CHECK(count <= shape_.slots());
  const auto end = static_cast<std::uint16_t>(next_ + count);
  if (role_ == MemifRole::kServer) {
    store(ring_ + kAtTail, end, std::memory_order_release);
  } else {
    for (std::uint16_t position = next_; position != end; ++position) {
      store(descriptor(position) + kAtLength, static_cast<std::uint32_t>(shape_.bufferBytes));
    }
    store(ring_ + kAtHead, static_cast<std::uint16_t>(end + shape_.slots()), std::memory_order_release);
  }
  next_ = end;
}

}  // namespace gloo_bypass
