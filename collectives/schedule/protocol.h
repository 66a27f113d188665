// The version of what the ranks of one group must have the same of. Ranks of other versions are refused when the group
// is made. Pure.
#pragma once

namespace gloo_bypass::collectives {

// One more with each change of: what they write into shared memory and onto the wire, what they agree on when the group
// is made, the algorithms' schedules and the built-in table of choices (tests/collectives/schedule/protocol_test.cc
// notices these two), the vectors for which a rank uses several lanes, and the pieces of operations on a GPU's tensors.
inline constexpr int kProtocol = 8;

}  // namespace gloo_bypass::collectives
