// Reads a description from a file.
#pragma once

#include <string>
#include <vector>

#include "tools/fabric/core/description.h"

namespace gloo_bypass::fabric {

// An empty path: flags alone. A file that cannot be read is kUnavailable; else as parseDescription.
Result<Description> loadDescription(const std::string& path, const std::vector<DescriptionFlag>& flags);

}  // namespace gloo_bypass::fabric
