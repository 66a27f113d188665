// How the channels of every back-end get the keys that protect them: each puts an offer beside its address in the
// rendezvous store, and takes the peer's when it connects (transport/security/key_agreement.h).
//
// Owner: one session. Thread: the progress engine's exclusive access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/base/status.h"
#include "transport/channel/channel_address.h"
#include "transport/channel/message_channel.h"
#include "transport/security/key_agreement.h"

namespace gloo_bypass {

// Null without `credentials`: the channel offers no keys. Errors: the system gives no random bytes.
Result<std::unique_ptr<security::KeyAgreement>> makeKeyAgreement(
    const std::shared_ptr<const security::Credentials>& credentials, std::uint64_t sessionId,
    const std::vector<std::byte>& portAddress, const ChannelOptions& options);

// Takes the peer's offer; `own` may be null. The error names the setting that differs, in one line that shows no value.
Status agreeOnKeys(security::KeyAgreement* own, const ChannelAddress& peer);

}  // namespace gloo_bypass
