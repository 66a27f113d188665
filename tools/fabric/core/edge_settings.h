// The settings of an edge by the names they have in descriptions and flags, and changes of some of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/fabric/core/edge_emulator.h"
#include "transport/base/status.h"

namespace gloo_bypass::fabric {

// Some settings of an edge; what is not set stays as it is.
struct EdgeChange {
  std::optional<std::uint64_t> rateBitsPerSecond;
  std::optional<Duration> delay, jitter, reorderDelay;
  std::optional<double> loss, burstEnter, burstLeave, burstLoss, duplication, reordering, corruption;
  std::optional<std::uint64_t> queueBytes;
  std::optional<std::uint16_t> overheadBytes;
  std::optional<bool> up;

  bool empty() const { return *this == EdgeChange{}; }
  void applyTo(EdgeModel& model) const;
  friend bool operator==(const EdgeChange&, const EdgeChange&) = default;
};

// Sets `key` to what `text` says ("delay", "300ms"). An error's message is only what is wrong with the text and what is
// allowed; it names neither key nor place. `key` must be known.
Status setEdge(EdgeChange& change, std::string_view key, std::string_view text);
bool isEdgeSetting(std::string_view key);
// In the order of documentation.
const std::vector<std::string>& edgeSettingNames();

}  // namespace gloo_bypass::fabric
