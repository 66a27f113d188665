#include "transport/dpdk/memif_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

namespace gloo_bypass::dpdk {
namespace {

// Fields of memif_msg_t, which is packed and in the machine's byte order.
constexpr std::uint16_t kInit = 3, kAddRegion = 4, kAddRing = 5;
constexpr std::size_t kAtType = 0;
constexpr std::size_t kAtInterfaceId = 4, kAtSecret = 9, kSecretBytes = 24;
constexpr std::size_t kAtRegionIndex = 2, kAtRegionBytes = 4;
constexpr std::size_t kAtRingFlags = 2, kAtRingIndex = 4, kAtRingRegion = 6, kAtRingOffset = 8, kAtRingLog2 = 12;
constexpr std::uint16_t kRingToServer = 1;

template <typename T>
T field(std::span<const std::byte, kMemifMessageBytes> message, std::size_t at) {
  T value;
  std::memcpy(&value, &message[at], sizeof(T));
  return value;
}

std::size_t ringBytes(const MemifRingShape& shape) { return kMemifDescriptorsAt + kMemifDescriptorBytes * shape.slots(); }

// A file that can shrink would end us with SIGBUS.
bool isSealed(int fd, std::size_t bytes) {
  struct stat status {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && ::fstat(fd, &status) == 0 &&
         static_cast<std::uint64_t>(status.st_size) >= bytes;
}

}  // namespace

void nameMemifServer(std::span<std::byte, kMemifMessageBytes> message, std::uint32_t interfaceId,
                     std::string_view secret) {
  if (field<std::uint16_t>(message, kAtType) != kInit) return;
  std::memcpy(&message[kAtInterfaceId], &interfaceId, sizeof(interfaceId));
  std::memset(&message[kAtSecret], 0, kSecretBytes);
  std::memcpy(&message[kAtSecret], secret.data(), std::min(secret.size(), kSecretBytes - 1));
}

MemifMemory::~MemifMemory() {
  if (region_ != nullptr) ::munmap(region_, regionBytes_);
}

bool MemifMemory::overhear(std::span<const std::byte, kMemifMessageBytes> message, int fd) {
  switch (field<std::uint16_t>(message, kAtType)) {
    case kAddRegion:
      return addRegion(message, fd);
    case kAddRing:
      return addRing(message);
    default:
      return true;
  }
}

bool MemifMemory::addRegion(std::span<const std::byte, kMemifMessageBytes> message, int fd) {
  const std::size_t bytes = 2 * (ringBytes(shape_) + shape_.slots() * shape_.bufferBytes);
  if (region_ != nullptr || field<std::uint16_t>(message, kAtRegionIndex) != 0 ||
      field<std::uint64_t>(message, kAtRegionBytes) != bytes || !isSealed(fd, bytes)) {
    return false;
  }
  // All pages at once: a ring comes round to each of them, and page faults on the way would triple the time of the first messages.
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (address == MAP_FAILED) return false;
  region_ = static_cast<std::byte*>(address);
  regionBytes_ = bytes;
  return true;
}

bool MemifMemory::addRing(std::span<const std::byte, kMemifMessageBytes> message) {
  const bool toServer = (field<std::uint16_t>(message, kAtRingFlags) & kRingToServer) != 0;
  const std::size_t offset = field<std::uint32_t>(message, kAtRingOffset);
  std::byte*& ring = toServer ? toServer_ : toClient_;
  if (region_ == nullptr || ring != nullptr || field<std::uint16_t>(message, kAtRingIndex) != 0 ||
      field<std::uint16_t>(message, kAtRingRegion) != 0 ||
      field<std::uint8_t>(message, kAtRingLog2) != shape_.log2Slots || offset % kMemifDescriptorBytes != 0 ||
      offset > regionBytes_ - ringBytes(shape_)) {
    return false;
  }
  ring = region_ + offset;
  return true;
}

}  // namespace gloo_bypass::dpdk
