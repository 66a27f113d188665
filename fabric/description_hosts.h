// The hosts of a description, from its entries. Part of parseDescription.
#pragma once

#include <vector>

#include "fabric/description.h"
#include "fabric/description_source.h"

namespace gloo_bypass::fabric {

Result<std::vector<HostDescription>> readHosts(const std::vector<Entry>& entries);

}  // namespace gloo_bypass::fabric
