// The table of algorithms. choices.h chooses among them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "collectives/operation.h"
#include "collectives/schedule/schedule.h"

namespace gloo_bypass::collectives {

// Values go over the wire: append only, before kEnd.
enum class Algorithm : std::uint8_t {
  kOneShot,
  kDirect,
  kRing,
  kBidirectionalRing,
  kHalvingDoubling,
  kDoubleTree,
  kBinomial,
  kScatterAllGather,
  kDissemination,
  kTwoLevelRing,
  kTwoLevelOneShot,
  kRecursiveDoubling,
  kTwoLevelRails,
  kEnd,  // no algorithm
};
inline constexpr int kAlgorithms = static_cast<int>(Algorithm::kEnd);

// Whether data moves within each host first: worth it only among hosts of several ranks.
constexpr bool isTwoLevel(Algorithm algorithm) {
  return algorithm == Algorithm::kTwoLevelRing || algorithm == Algorithm::kTwoLevelOneShot ||
         algorithm == Algorithm::kTwoLevelRails;
}

const char* nameOf(Algorithm algorithm);  // "halving-doubling"
std::optional<Algorithm> algorithmNamed(std::string_view name);

struct AlgorithmRow {
  Kind kind;
  Algorithm algorithm;
  Schedule (*make)(const Place&);
  const char* cost;  // for people: rounds, and bytes that a rank sends; n bytes in all, p ranks
  // Each sum goes over all ranks in their order, and is made once: ((input of 0 + of 1) + of 2) ... True where nothing
  // is added.
  bool addsInOrder = true;
};
std::span<const AlgorithmRow> algorithms();
// Null: there is no such algorithm for this kind.
const AlgorithmRow* findAlgorithm(Kind kind, Algorithm algorithm);

}  // namespace gloo_bypass::collectives
