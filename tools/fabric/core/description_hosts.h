// The hosts of a description, from its entries. Part of parseDescription.
#pragma once

#include <vector>

#include "tools/fabric/core/description.h"
#include "tools/fabric/core/description_source.h"

namespace gloo_bypass::fabric {

Result<std::vector<HostDescription>> readHosts(const std::vector<Entry>& entries);

}  // namespace gloo_bypass::fabric
