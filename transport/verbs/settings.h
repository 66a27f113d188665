// The settings of RDMA. Also in builds without libibverbs, which name the back-end that is missing.
#pragma once

#include <vector>

#include "transport/channel/setting.h"

namespace gloo_bypass::verbs {

std::vector<Setting> settings();

}  // namespace gloo_bypass::verbs
