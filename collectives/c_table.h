// The table of c_api.h, for the libraries that export gloo_bypass_collectives_v1. Constant.
#pragma once

#include "collectives/c_api.h"

namespace gloo_bypass::collectives {

const gloo_bypass_collectives& cTable();

}  // namespace gloo_bypass::collectives
