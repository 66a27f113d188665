// The table of algorithms, and the table that chooses among them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "collectives/operation.h"
#include "collectives/schedule/schedule.h"

namespace gloo_bypass::collectives {

// Values go over the wire: append only.
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
};
inline constexpr int kAlgorithms = 11;

const char* nameOf(Algorithm algorithm);  // "halving-doubling"
std::optional<Algorithm> algorithmNamed(std::string_view name);

struct AlgorithmRow {
  Kind kind;
  Algorithm algorithm;
  Schedule (*make)(const Place&);
  const char* cost;  // for people: rounds, and bytes that a rank sends; n bytes in all, p ranks
};
std::span<const AlgorithmRow> algorithms();
// Null: there is no such algorithm for this kind.
const AlgorithmRow* findAlgorithm(Kind kind, Algorithm algorithm);

struct Choice {
  Algorithm algorithm = Algorithm::kDirect;
  // Data beyond this a part is done in slices, several at a time, so that a rank sets a bounded amount aside.
  std::size_t partBytes = 0;
};
// `bytes`: of the vector, or of all blocks together. The same in every rank.
Choice choose(Kind kind, std::size_t bytes, int size);
Choice choiceOf(Algorithm algorithm, int size);
// "ring: 2 (p - 1) rounds, 2 n (p - 1) / p bytes; chosen for more than ..."
std::string explain(Kind kind, std::size_t bytes, int size);

}  // namespace gloo_bypass::collectives
