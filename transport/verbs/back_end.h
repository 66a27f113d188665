// RDMA verbs as a back-end.
#pragma once

#include <memory>

#include "transport/channel/back_end.h"
#include "transport/sessions/polled_transport.h"

namespace gloo_bypass::verbs {

BackEnd backEnd();

// As the back-end's `make`, to be driven beside other transports. In a build without verbs an error that names the
// package.
Result<std::unique_ptr<PolledTransport>> makePolled(const TransportConfig& config);

}  // namespace gloo_bypass::verbs
