// Wraps a transport and measures how long its operations take. The inner transport, of any back-end, does not know it.
//
//   adapter --> TimedTransport: clock read, token remembered --> back-end
//   adapter <-- TimedTransport: clock read, time counted    <-- back-end's observer calls
//
// It measures, from the call to its end:
//   send      postSend to onSendComplete: the buffer may be used again (a copied send: at once)
//   receive   postReceive to onReceiveComplete: includes the wait for the peer. Persistent receives (of bound buffers)
//             do not count: one is posted for many messages
//   connect   connect() to kConnected
//
// Memory: 23 KiB for each direction, 10 KiB a peer process (at most kMaxTimedPeers; the rest appear only in the sums),
// and 24 to 72 bytes for each operation under way. Thread: as in Transport and MessageChannel. It reads the clock twice
// an operation.
#pragma once

#include <memory>

#include "transport/channel/message_channel.h"

namespace gloo_bypass {

inline constexpr std::size_t kMaxTimedPeers = 256;

// Takes over `inner`: open channels only on the result. Its report gains `operations`, in size classes "up_to_1KiB",
// "up_to_32KiB", "up_to_1MiB" and "larger".
std::shared_ptr<Transport> makeTimedTransport(std::shared_ptr<Transport> inner);

}  // namespace gloo_bypass
