// The software adapter's transport for media that join it with another.
#pragma once

#include <memory>

#include "transport/base/config.h"
#include "transport/base/status.h"
#include "transport/sessions/polled_transport.h"

namespace gloo_bypass::test {

// Without an engine, to share one with other transports; its devices are soft0 and soft1.
Result<std::unique_ptr<PolledTransport>> makePolledSoftwareRdma(const TransportConfig& config);

}  // namespace gloo_bypass::test
