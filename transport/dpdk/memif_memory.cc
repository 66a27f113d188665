#include "transport/dpdk/memif_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "transport/base/exhausted.h"
#include "transport/base/sealed_memory.h"

namespace gloo_bypass::dpdk {
namespace {

// Both ends identify a ring by it.
constexpr std::uint32_t kCookie = 0x3E31F20;

std::size_t ringBytes(const MemifRingShape& shape) {
  return kMemifDescriptorsAt + kMemifDescriptorBytes * shape.slots();
}
std::size_t bytesOf(const MemifRingShape& shape) { return 2 * (ringBytes(shape) + shape.slots() * shape.bufferBytes); }

// A file that can shrink could end us with SIGBUS; so could huge pages when none are left.
bool isSealed(int file, std::size_t bytes) {
  struct stat status{};
  struct statfs system{};
  const int seals = ::fcntl(file, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && ::fstat(file, &status) == 0 &&
         static_cast<std::uint64_t>(status.st_size) >= bytes && ::fstatfs(file, &system) == 0 &&
         system.f_type != HUGETLBFS_MAGIC;
}

template <typename T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

}  // namespace

Result<std::unique_ptr<MemifMemory>> MemifMemory::create(const MemifRingShape& shape, MemifPages pages) {
  auto memory = std::make_unique<MemifMemory>(shape, pages);
  const std::size_t bytes = bytesOf(shape);
  auto file = makeSealedMemory("memif_region_0", bytes);
  if (!file) return file.error();
  memory->file_ = std::move(file).value();
  for (const MemifMessage& message : memory->description()) {
    if (memory->describe(message, memory->file_.get())) continue;
    const int cause = errno;
    return Error{ErrorScope::kSession, codeOf(cause),
                 fmt::format("cannot map {} bytes of memory to share: {}", bytes, reasonOf(cause))};
  }
  memory->offerBuffers();
  return memory;
}

MemifMemory::~MemifMemory() {
  if (region_ != nullptr) ::munmap(region_, regionBytes_);
}

std::array<MemifMessage, 3> MemifMemory::description() const {
  MemifMessage region = memifMessage(MemifMessageType::kAddRegion);
  setMemifField(region, memif_field::kRegionBytes, static_cast<std::uint64_t>(bytesOf(shape_)));
  std::array<MemifMessage, 2> rings;
  for (std::size_t i = 0; i < rings.size(); ++i) {
    rings[i] = memifMessage(MemifMessageType::kAddRing);
    setMemifField(rings[i], memif_field::kRingFlags, i == 0 ? kMemifRingToServer : std::uint16_t{0});
    setMemifField(rings[i], memif_field::kRingOffset, static_cast<std::uint32_t>(i * ringBytes(shape_)));
    setMemifField(rings[i], memif_field::kRingLog2Slots, static_cast<std::uint8_t>(shape_.log2Slots));
  }
  return {region, rings[0], rings[1]};
}

// No other process has the memory yet.
void MemifMemory::offerBuffers() {
  std::size_t offset = 2 * ringBytes(shape_);
  for (std::byte* const ring : {toServer_, toClient_}) {
    put(ring + kMemifCookieAt, kCookie);
    put(ring + kMemifRingFlagsAt, kMemifNoEvents);
    for (std::size_t slot = 0; slot < shape_.slots(); ++slot, offset += shape_.bufferBytes) {
      std::byte* const descriptor = ring + kMemifDescriptorsAt + kMemifDescriptorBytes * slot;
      put(descriptor + kMemifLengthAt, static_cast<std::uint32_t>(shape_.bufferBytes));
      put(descriptor + kMemifOffsetAt, static_cast<std::uint32_t>(offset));
    }
  }
  put(toClient_ + kMemifHeadAt, static_cast<std::uint16_t>(shape_.slots()));
}

bool MemifMemory::describe(const MemifMessage& message, int descriptor) {
  switch (memifType(message)) {
    case MemifMessageType::kAddRegion:
      return addRegion(message, descriptor);
    case MemifMessageType::kAddRing:
      return addRing(message);
    default:
      return false;
  }
}

bool MemifMemory::addRegion(const MemifMessage& message, int descriptor) {
  const std::size_t bytes = bytesOf(shape_);
  if (region_ != nullptr || memifField<std::uint16_t>(message, memif_field::kRegionIndex) != 0 ||
      memifField<std::uint64_t>(message, memif_field::kRegionBytes) != bytes || !isSealed(descriptor, bytes)) {
    return false;
  }
  const int populate = pages_ == MemifPages::kAtOnce ? MAP_POPULATE : 0;
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | populate, descriptor, 0);
  exhausted_ = address == MAP_FAILED && errno == ENOMEM;
  if (address == MAP_FAILED) return false;
  region_ = static_cast<std::byte*>(address);
  regionBytes_ = bytes;
  return true;
}

bool MemifMemory::addRing(const MemifMessage& message) {
  const bool toServer = (memifField<std::uint16_t>(message, memif_field::kRingFlags) & kMemifRingToServer) != 0;
  const std::size_t offset = memifField<std::uint32_t>(message, memif_field::kRingOffset);
  std::byte*& ring = toServer ? toServer_ : toClient_;
  if (region_ == nullptr || ring != nullptr || memifField<std::uint16_t>(message, memif_field::kRingIndex) != 0 ||
      memifField<std::uint16_t>(message, memif_field::kRingRegion) != 0 ||
      memifField<std::uint8_t>(message, memif_field::kRingLog2Slots) != shape_.log2Slots ||
      offset % kMemifDescriptorBytes != 0 || offset > regionBytes_ - ringBytes(shape_)) {
    return false;
  }
  ring = region_ + offset;
  return true;
}

}  // namespace gloo_bypass::dpdk
