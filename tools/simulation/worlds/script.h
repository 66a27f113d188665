// A world, written down: its ranks, the edges between them, what they send or call, and the faults. As text it has a
// line for each of these, a noun and words of key=value; what is left out has its default here:
//
//   world seed=17 ranks=2
//   edge from=0 to=1 delay=5ms loss=1%
//   message from=0 to=1 length=1000 send-at=1ms receive-at=2ms
//   fault kind=pause at=3ms for=20ms rank=1
//
// The seed of a script gives ids, contents and the dice of edges, so a script repeats a run to the nanosecond. All
// times count from the beginning of the world.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/operation.h"
#include "tools/fabric/core/edge_settings.h"
#include "tools/simulation/core/traffic.h"
#include "transport/base/config.h"
#include "transport/base/status.h"
#include "transport/base/time.h"

namespace gloo_bypass::sim {

// A fault of the world itself that breaks a promise, so that a hunt must find it. For tests of the hunter.
enum class Plant : std::uint8_t {
  kNothing,
  kFlip,     // the network flips a bit of messages that carry no checksum
  kSwallow,  // a receiver acknowledges a message and loses it
  kHoard,    // a session keeps the payload of every message that it has delivered
};

// One rank's settings, as its user may have set them.
struct RankScript {
  int rank = 0;
  Duration startAt{0};  // it connects
  Duration turn{0};     // how long its program takes to look at what has happened
  CongestionControl congestion = CongestionControl::kAuto;
  Repair::Mode fec = Repair::Mode::kAuto;
  std::size_t fecPercent = 0;
  PayloadChecksum checksum = PayloadChecksum::kAuto;
  std::size_t eagerBytes = SessionConfig{}.shortPathEagerBytes;
  std::size_t bufferBytes = SessionConfig{}.maxBufferBytes;
  std::size_t rendezvousBytes = SessionConfig{}.rendezvousBytes;
  Duration peerTimeout = SessionConfig{}.peerTimeout;
  std::size_t ahead = 0;  // of a group's operations: how many it starts before it waits for the first of them
  // wire::Capability bits that its Hello does not have: its peers take it for an earlier version.
  std::size_t lacks = 0;

  SessionConfig config() const;
  bool operator==(const RankScript&) const = default;
};

// The connection of two ranks, the lower one first.
struct PairScript {
  int from = 0, to = 1;
  int rails = 1;
  std::size_t datagramBytes = 1472;  // that the links carry
  bool lossless = false;             // a memory link: a full ring refuses
  // Datagrams are sealed, which adds to their bytes; keys change after so many either way. 0: not sealed.
  std::uint64_t keyPackets = 0;

  bool operator==(const PairScript&) const = default;
};

// A direction of one path of a pair. Without a line an edge has a delay of 50 us and does nothing else.
struct EdgeScript {
  int from = 0, to = 1, rail = 0;
  fabric::EdgeChange settings;

  bool operator==(const EdgeScript&) const = default;
};

struct MessageScript : PlannedMessage {
  int from = 0, to = 1;

  bool operator==(const MessageScript&) const = default;
};

// Of all ranks, in this order.
struct OperationScript {
  collectives::Kind kind = collectives::Kind::kAllReduce;
  collectives::ElementType type = collectives::ElementType::kInt64;
  collectives::Reduction reduction = collectives::Reduction::kSum;
  std::size_t count = 1;
  int root = 0;
  bool uneven = false, inPlace = false;
  int differs = -1;   // this rank calls one element more; -1: none
  Duration pause{0};  // of each rank before it, at most

  bool operator==(const OperationScript&) const = default;
};

enum class FaultKind : std::uint8_t {
  kEdge,     // from -> to, for a while: `settings`
  kMtu,      // from -> to, for good: what is longer than `bytes` is lost
  kPause,    // `rank` stands still for a while
  kKill,     // `rank` vanishes for good; its peers hear of it after `notice`, or never if that is 0
  kRestart,  // the same, and `rank` comes back after `length` with new sessions
  kAbort,    // `rank` aborts its sessions
  kClose,    // `rank` closes them in good order
};

struct FaultScript {
  FaultKind kind = FaultKind::kEdge;
  Duration at{0}, length{0};
  int from = 0, to = 1, rail = 0;
  int rank = 0;
  std::size_t bytes = 0;
  Duration notice{0};
  fabric::EdgeChange settings;

  bool operator==(const FaultScript&) const = default;
};

struct Script {
  std::uint64_t seed = 0;
  int ranks = 2;
  Plant plant = Plant::kNothing;
  // Of a group: what its operations may take; its algorithms, as ChoiceTable::prefer has them; the number of hosts,
  // for two-level algorithms.
  Duration callTimeout = std::chrono::minutes(5);
  std::string algorithms;
  int hosts = 1;

  std::vector<RankScript> settings;  // of ranks that differ from the default
  std::vector<PairScript> pairs;     // likewise
  std::vector<EdgeScript> edges;
  std::vector<MessageScript> messages;      // by time of sending, for each direction
  std::vector<OperationScript> operations;  // a world has messages or operations
  std::vector<FaultScript> faults;

  static constexpr int kMostRanks = 16, kMostRails = 4;
  RankScript rank(int rank) const;
  PairScript pair(int a, int b) const;
  fabric::EdgeModel edge(int from, int to, int rail) const;
  bool operator==(const Script&) const = default;
};

// What else relies on: ranks, rails and operations that can be. parseScript() has looked at it.
Status checkScript(const Script& script);
std::string textOf(const Script& script);
// Lines that begin with # are comments. Errors name the line, and say what is allowed.
Result<Script> parseScript(std::string_view text);

}  // namespace gloo_bypass::sim
