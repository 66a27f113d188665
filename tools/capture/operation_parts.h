// What ranks sent each other in collective operations of gloo-bypass, frame by frame (collectives/network/wire.h):
// frames say by their message's tag, or by its number, which operation they belong to. Pure. The bytes are hostile.
//
// A part is what one session, so one rank to one other, carried of one operation. operations.h makes operations of
// these. Frames that only acknowledge, grant or repair belong to none.
//
//   frame with a description (tag) --> part of its operation; its message is remembered
//   frame with a message's number  --> part of that message's operation; kept aside until the message is described,
//                                      since the network may reorder them
//
// Bounds: kMaxSessions, kMaxParts; of a session, the operations and messages that were last seen. What exceeds them is
// counted.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "collectives/network/wire.h"
#include "tools/capture/dissection.h"
#include "tools/capture/step_windows.h"
#include "transport/base/flat_map.h"

namespace gloo_bypass::capture {

// Of frames that carry or announce messages. Bytes as Analysis counts them.
struct OperationTotals {
  std::uint64_t frames = 0, bytes = 0, payloadBytes = 0;
  std::uint64_t repeatedBytes = 0;  // of the payload: retransmitted, or overtaken
  CaptureTime first = CaptureTime::max(), last = CaptureTime::min();

  void operator+=(const OperationTotals& more);
};

struct RankAddress {
  std::uint32_t address = 0;                             // IPv4
  std::uint16_t port = 0;                                // UDP
  auto operator<=>(const RankAddress&) const = default;  // NOLINT(modernize-use-nullptr): clang 14 takes its 0 for one
};

struct OperationPart {
  std::uint32_t session = 0;  // in OperationParts::sessions()
  // As the header says; without one it goes on from the operation before: tags have 24 bits of it.
  std::uint64_t number = 0;
  std::optional<collectives::Description> description;  // nullopt: its header was not captured, or is unsound
  collectives::Algorithm algorithm{};                   // only with a description
  OperationTotals totals;
};

// From one rank to another, in one group.
struct OperationSession {
  RankAddress from, to;
};

struct OperationCounters {
  std::uint64_t notKept = 0;  // frames of operations beyond the bounds
  // Frames of messages that no captured frame near them describes, or of operations long over.
  std::uint64_t unplaced = 0;
};

class OperationParts {
 public:
  static constexpr std::size_t kMaxSessions = 4'096, kMaxParts = 250'000;

  void onFrame(const DissectedFrame& frame, CaptureTime time, std::uint64_t repeatedBytes);
  // At the capture's end.
  void finish();

  const std::vector<OperationPart>& parts() const { return parts_; }  // as they began
  const std::vector<OperationSession>& sessions() const { return sessions_; }
  const OperationCounters& counters() const { return counters_; }

 private:
  static constexpr std::size_t kRememberedOperations = 64, kRememberedMessages = 128;
  // Instead of a part's index.
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max(), kUnknown = kNone - 1;

  struct Message {
    bool used = false;
    std::uint64_t id = 0;
    std::uint32_t part = kUnknown;  // kUnknown: it was not described yet
    OperationTotals early;          // until then
  };
  struct Recent {
    Recent() { operations.fill(kNone); }
    bool any = false;
    std::uint64_t newest = 0;
    std::array<std::uint32_t, kRememberedOperations> operations;  // parts, by number
    std::vector<Message> messages;                                // by id; empty: no message had several frames yet
  };

  std::optional<std::uint32_t> sessionOf(const DissectedFrame& frame, bool create);
  std::uint32_t partOf(std::uint32_t session, const collectives::CollectiveTag& tag, const MessagePart& message);
  Message* messageOf(Recent& recent, std::uint64_t id);
  void describe(Recent& recent, std::uint64_t id, std::uint32_t part);
  void addChunk(Recent& recent, std::uint64_t id, const OperationTotals& frame);
  void forget(Message& message);

  std::vector<OperationPart> parts_;
  std::vector<OperationSession> sessions_;
  std::vector<Recent> recent_;                         // of each session
  FlatMap<std::uint64_t, std::uint32_t> sessionById_;  // by the ids of its paths
  OperationCounters counters_;
};

}  // namespace gloo_bypass::capture
