// The memory that the ranks of one host share: a sealed memfd with one area a rank. A rank writes only its own area,
// and reads the others'.
//
//   page 0       failure word; whether messages are wanted; each rank's membership
//   then for each rank, from a page of its own on (its owner touches it first: it lies on the owner's NUMA node):
//     lines      two for each lane, used in turn: the number of the last published round, and what was published
//     slots      two for each lane, used in turn: bytes that peers read
//
// A lane is a thread of each rank; the lanes of a host are independent of each other. All of it is hostile: a peer may
// write anything anywhere at any time. Read a word once, check it, then use it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/operation.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"

namespace gloo_bypass::collectives {

struct Layout {
  static constexpr std::size_t kMostBytes = 64u << 20;  // of one group on one host, whatever its number of ranks
  static constexpr int kMostRanks = 256, kMostLanes = 16;

  int ranks = 1, lanes = 1;
  std::size_t slotBytes = 0;  // a multiple of a page

  // The largest useful slots within kMostBytes, and fewer lanes if a slot had no room for two cache lines a rank.
  static Layout of(int ranks, int lanes);
  std::size_t areaBytes() const;
  std::size_t bytes() const;
};

// What a rank publishes when it begins a round. A reader waits for the number, so what came before it is visible.
// 64 bytes, a cache line: a small vector travels in it, and costs one transfer between caches.
struct alignas(64) Line {
  static constexpr std::size_t kPayloadBytes = 40;
  std::atomic<std::uint32_t> round;     // never the number of another round that a peer may wait for
  std::atomic<std::uint32_t> sleepers;  // threads of peers in futex(round)
  DescriptionWords words;
  std::byte payload[kPayloadBytes];
};
static_assert(sizeof(Line) == 64);

enum class Membership : std::uint32_t { kHere = 0, kLeft = 1 };

class Segment {
 public:
  // Makes the memory. Errors: kExhausted, kUnavailable.
  static Result<Segment> create(const Layout& layout);
  // Maps memory that a peer made. kPeerViolatedProtocol if it is not sealed memory of this layout.
  static Result<Segment> open(FileDescriptor file, const Layout& layout);
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;
  ~Segment();

  const Layout& layout() const { return layout_; }
  const FileDescriptor& file() const { return file_; }
  void closeFile() { file_.reset(); }  // once every peer has it
  // Gives this rank's area its pages now, on this thread's NUMA node.
  void touch(int rank);

  // 0: none; else the first failure that a rank has met, for everybody (flat_executor.cc).
  std::atomic<std::uint64_t>& failure() const;
  // Not 0: a rank has a message for another (messenger.h). A futex.
  std::atomic<std::uint32_t>& messagesWanted() const;
  std::atomic<Membership>& membership(int rank) const;
  Line& line(int rank, int lane, std::uint32_t round) const;
  std::byte* slot(int rank, int lane, std::uint32_t round) const;

 private:
  Segment(const Layout& layout, FileDescriptor file, std::byte* memory)
      : layout_(layout), file_(std::move(file)), memory_(memory) {}
  std::byte* area(int rank) const;

  Layout layout_;
  FileDescriptor file_;
  std::byte* memory_;  // of layout_.bytes()
};

}  // namespace gloo_bypass::collectives
