// The collective operations of a capture, and the spread of their figures by what was called. Pure.
//
// Frames name neither group nor rank. A rank is the address and port that it sends from. A session belongs to the group
// of those sessions that share a rank with it and carried an operation of the same number and description, nearest in
// time to its first one, unless that group has a session between the same two ranks already. So groups over the same
// ranks stay apart; of ranks that never met in the capture the groups do too.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tools/capture/operation_parts.h"
#include "tools/capture/step_statistics.h"

namespace gloo_bypass::capture {

// What one rank sent in one operation.
struct OperationRank {
  RankAddress rank;
  OperationTotals sent;
};

struct Operation {
  std::uint32_t group = 0;  // from 1
  std::uint64_t number = 0;
  // nullopt: no header of it was captured.
  std::optional<collectives::Description> description;
  std::optional<collectives::Algorithm> algorithm;
  bool agreed = true;  // false: ranks called different things
  OperationTotals totals;
  CaptureTime lastStart{};                   // the first packet of the rank that began last
  std::size_t ranksBegin = 0, ranksEnd = 0;  // in Operations::ranks, by address

  // From the first packet of any rank to the last one.
  double seconds() const;
  // From the first rank's first packet to the last rank's first packet.
  double skewSeconds() const;
};

struct Operations {
  std::vector<Operation> all;  // as they began
  std::vector<OperationRank> ranks;
  std::uint32_t groups = 0;
};

Operations operationsOf(const OperationParts& parts);

// "all-reduce of 1024 float32, sum (ring)"; "?" where it is not known.
std::string callText(const Operation& operation);

// Of all operations that called the same, over the same algorithm.
struct CallStatistics {
  const Operation* example = nullptr;
  std::size_t operations = 0;
  Spread bytes{}, seconds{}, skewSeconds{};
  std::uint64_t bytesInAll = 0, repeatedBytes = 0;
};
// As they were first called. Lives no longer than `operations`.
std::vector<CallStatistics> callStatistics(const Operations& operations);

}  // namespace gloo_bypass::capture
