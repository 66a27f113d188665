// The edges of a description and their timed changes, from its entries. Part of parseDescription.
#pragma once

#include <vector>

#include "tools/fabric/core/description.h"
#include "tools/fabric/core/description_source.h"

namespace gloo_bypass::fabric {

// Fills `edges` and `events`, for the hosts that `description` has.
Status readEdges(const std::vector<Entry>& entries, Description& description);

}  // namespace gloo_bypass::fabric
