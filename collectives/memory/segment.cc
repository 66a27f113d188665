#include "collectives/memory/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "transport/base/exhausted.h"
#include "transport/base/sealed_memory.h"

namespace gloo_bypass::collectives {
namespace {

constexpr std::size_t kPageBytes = 4096;
// Two ranks that sum by halves are fastest with chunks of 128 KiB: both fit into a level-2 cache with their peers'.
constexpr std::size_t kSlotBytes = 128 * 1024, kSlotBytesOfManyRanks = 32 * 1024, kMostSlotBytes = 512 * 1024;

struct Header {
  std::atomic<std::uint64_t> failure;
  std::atomic<std::uint32_t> messagesWanted;
  std::atomic<Membership> membership[Layout::kMostRanks];
};

std::size_t toPages(std::size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

std::size_t lineBytes(const Layout& layout) {
  return toPages(2 * static_cast<std::size_t>(layout.lanes) * sizeof(Line));
}

Result<std::byte*> map(const FileDescriptor& file, std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) {
    const auto [code, text] = failedCall("mmap");
    return Error{ErrorScope::kDevice, code, "cannot map the memory that this host's ranks share (" + text + ")"};
  }
  return static_cast<std::byte*>(memory);
}

}  // namespace

Layout Layout::of(int ranks, int lanes) {
  Layout layout{.ranks = ranks, .lanes = lanes};
  const auto slots = static_cast<std::size_t>(2 * ranks * lanes);
  const std::size_t wanted =
      std::clamp(kSlotBytesOfManyRanks * static_cast<std::size_t>(ranks), kSlotBytes, kMostSlotBytes);
  const std::size_t rest = kMostBytes - toPages(sizeof(Header)) - static_cast<std::size_t>(ranks) * lineBytes(layout);
  layout.slotBytes = std::min(wanted, rest / slots) / kPageBytes * kPageBytes;
  const bool tooSmall = layout.slotBytes < static_cast<std::size_t>(ranks) * 2 * sizeof(Line);
  return tooSmall && lanes > 1 ? of(ranks, lanes - 1) : layout;
}

std::size_t Layout::areaBytes() const { return lineBytes(*this) + 2 * static_cast<std::size_t>(lanes) * slotBytes; }
std::size_t Layout::bytes() const { return toPages(sizeof(Header)) + static_cast<std::size_t>(ranks) * areaBytes(); }

Result<Segment> Segment::create(const Layout& layout) {
  auto file = makeSealedMemory("gloo-bypass-collectives", layout.bytes());
  if (!file) return file.error();
  const auto memory = map(file.value(), layout.bytes());
  if (!memory) return memory.error();
  return Segment(layout, std::move(file).value(), memory.value());  // zero-filled: valid initial values
}

Result<Segment> Segment::open(FileDescriptor file, const Layout& layout) {
  struct stat status{};
  // Look at the seals first: only files in memory have them, and fstat could block on another file system.
  const int seals = file ? ::fcntl(file.get(), F_GET_SEALS) : -1;
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(file.get(), &status) != 0 ||
      status.st_size != static_cast<off_t>(layout.bytes())) {
    return Error{ErrorScope::kSession, ErrorCode::kPeerViolatedProtocol,
                 "the memory that a peer shares is not sealed, or of another size"};
  }
  const auto memory = map(file, layout.bytes());
  if (!memory) return memory.error();
  return Segment(layout, std::move(file), memory.value());
}

Segment::Segment(Segment&& other) noexcept
    : layout_(other.layout_), file_(std::move(other.file_)), memory_(std::exchange(other.memory_, nullptr)) {}

Segment::~Segment() {
  if (memory_ != nullptr) ::munmap(memory_, layout_.bytes());
}

void Segment::touch(int rank) {
  // Peers may wait on the lines already: what they count there must stay.
  for (int lane = 0; lane < layout_.lanes; ++lane) {
    for (const std::uint32_t round : {0u, 1u}) line(rank, lane, round).sleepers.fetch_add(0);
  }
  std::memset(slot(rank, 0, 0), 0, 2 * static_cast<std::size_t>(layout_.lanes) * layout_.slotBytes);
}

std::byte* Segment::area(int rank) const {
  return memory_ + toPages(sizeof(Header)) + static_cast<std::size_t>(rank) * layout_.areaBytes();
}
std::atomic<std::uint64_t>& Segment::failure() const { return reinterpret_cast<Header*>(memory_)->failure; }
std::atomic<std::uint32_t>& Segment::messagesWanted() const {
  return reinterpret_cast<Header*>(memory_)->messagesWanted;
}
std::atomic<Membership>& Segment::membership(int rank) const {
  return reinterpret_cast<Header*>(memory_)->membership[rank];
}
Line& Segment::line(int rank, int lane, std::uint32_t round) const {
  return reinterpret_cast<Line*>(area(rank))[2 * lane + static_cast<int>(round % 2)];
}
std::byte* Segment::slot(int rank, int lane, std::uint32_t round) const {
  const auto index = static_cast<std::size_t>(2 * lane) + round % 2;
  return area(rank) + lineBytes(layout_) + index * layout_.slotBytes;
}

}  // namespace gloo_bypass::collectives
