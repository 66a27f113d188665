// RDMA verbs as a back-end.
#pragma once

#include "transport/channel/back_end.h"

namespace gloo_bypass::verbs {

BackEnd backEnd();

}  // namespace gloo_bypass::verbs
