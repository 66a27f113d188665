// The handle on a session that the user of a transport holds: closes it, and lets go of it.
#pragma once

#include <memory>

#include "transport/io/message_channel.h"
#include "transport/verbs/rdma_session.h"

namespace gloo_bypass {

// `device` must outlive the channel; `session` lives at least until the channel's close().
std::unique_ptr<MessageChannel> makeVerbsChannel(RdmaDevice& device, RdmaSession& session);

}  // namespace gloo_bypass
