// The back-end over RDMA verbs.
#pragma once

#include <memory>

#include "transport/channel/back_end.h"
#include "transport/sessions/polled_transport.h"

namespace gloo_bypass::verbs {

BackEnd backEnd();

// As the back-end's `make`, without an engine, to share one with other transports. In a build without verbs the error
// names the package.
Result<std::unique_ptr<PolledTransport>> makePolled(const TransportConfig& config);

}  // namespace gloo_bypass::verbs
