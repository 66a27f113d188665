// A rank's message to another when a collective has failed here: the other may wait for this rank in the same
// collective, and would wait until its timeout. One message of the channel, each way at most once: text, which says
// why.
//
// It travels as a message of a bound buffer, with a tag that no bound buffer has.
//
// Owner: its connection. Thread: every method needs the progress engine's exclusive access; called from the channel's
// observer as well.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "transport/base/status.h"
#include "transport/channel/message_channel.h"

namespace gloo_bypass::adapter {

class FailureNotice {
 public:
  static constexpr MessageKey key() { return {MessageKind::kBound, std::uint64_t{1} << 60}; }
  // Tokens of operations are addresses, which never have this bit.
  static bool owns(OperationToken token) { return (token & kTokenBit) != 0; }

  // At most once. Longer text is cut.
  void send(MessageChannel& channel, const std::string& text);
  // The peer's has been announced. False: no correct peer sends this.
  [[nodiscard]] bool receive(MessageChannel& channel, std::size_t length);
  // What the peer said, once it is here.
  std::string received() const;

 private:
  static constexpr OperationToken kTokenBit = OperationToken{1} << 62;

  std::vector<std::byte> outgoing_, incoming_;
  bool announced_ = false;
};

}  // namespace gloo_bypass::adapter
