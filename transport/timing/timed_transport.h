// A transport around another one that measures how long its operations take; the one inside, whichever back-end, knows
// nothing of it.
//
//   adapter --> TimedTransport: clock read, token remembered --> back-end
//   adapter <-- TimedTransport: clock read, time counted    <-- back-end's observer calls
//
// What is measured, from the call to its end:
//   send      postSend to onSendComplete: the buffer may be used again (a copied send: at once)
//   receive   postReceive to onReceiveComplete: includes the wait for the peer. Bound buffers' persistent receives are
//   not counted:
//             theirs are posted once for many messages
//   connect   connect() to kConnected
//
// Memory: 23 KiB for each direction, 10 KiB a peer process (at most kMaxTimedPeers; what others do is in the sums
// only), and 24 to 72 bytes for each operation under way. Thread: as Transport and MessageChannel say; the clock is
// read twice an operation.
#pragma once

#include <memory>

#include "transport/channel/message_channel.h"

namespace gloo_bypass {

inline constexpr std::size_t kMaxTimedPeers = 256;

// Takes `inner` over: nobody else should open channels on it. Its report gains `operations`.
// Size classes are "up_to_1KiB", "up_to_32KiB", "up_to_1MiB" and "larger".
std::shared_ptr<Transport> makeTimedTransport(std::shared_ptr<Transport> inner);

}  // namespace gloo_bypass
