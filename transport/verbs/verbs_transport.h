// The back-end over RDMA verbs: reliable-connected queue pairs as MessageChannels.
//
// One per process and configuration. Owns the devices it opened, the progress engine and every queue pair; a queue pair
// outlives its closed channel until the peer has acknowledged everything sent.
#pragma once

#include <memory>

#include "transport/base/config.h"
#include "transport/channel/message_channel.h"
#include "transport/sessions/polled_transport.h"
#include "transport/verbs/verbs_api.h"

namespace gloo_bypass::verbs {

// `api` must outlive the transport: systemVerbs(), or a test's. Errors: those of device_selection.h; kExhausted if
// memory cannot be locked.
Result<std::shared_ptr<Transport>> makeVerbsTransport(const VerbsApi& api, const TransportConfig& config);
// The same without an engine, to share one with other transports.
Result<std::unique_ptr<PolledTransport>> makePolledVerbsTransport(const VerbsApi& api, const TransportConfig& config);

}  // namespace gloo_bypass::verbs
