// Ids of a session's rails, its further paths to the same peer (core/session.h). Both ends derive them from the id of
// the session that leads, which the rendezvous store gave them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/base/flat_map.h"

namespace gloo_bypass::wire {

// With the session that leads, which is number 0.
inline constexpr std::size_t kMaxRails = 8;

constexpr std::uint64_t railId(std::uint64_t leadId, std::size_t rail) { return mixBits(leadId + rail); }

}  // namespace gloo_bypass::wire
