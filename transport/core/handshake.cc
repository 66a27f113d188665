#include "transport/core/handshake.h"

#include <algorithm>
#include <string>

namespace gloo_bypass {

std::optional<Error> compareSettings(const wire::Hello& local, const wire::Hello& remote) {
  const auto differ = [](const char* setting, const char* here, const char* there) {
    return Error{
        ErrorScope::kSession, ErrorCode::kConfiguration,
        std::string(setting) + " is " + here + " here and " + there + " on the peer; give both ranks the same setting"};
  };
  const auto link = [](std::uint8_t lossless) { return lossless != 0 ? "lossless (memory)" : "a network"; };
  const auto onOff = [](std::uint8_t on) { return on != 0 ? "on" : "off"; };
  if (local.lossless != remote.lossless) return differ("the link", link(local.lossless), link(remote.lossless));
  if (local.payloadChecksum != remote.payloadChecksum) {
    return differ("the payload checksum", onOff(local.payloadChecksum), onOff(remote.payloadChecksum));
  }
  if (local.maxDatagramBytes < wire::kUsualMinDatagramBytes && (remote.capabilities & wire::kCapabilitySmall) == 0) {
    return Error{ErrorScope::kSession, ErrorCode::kConfiguration,
                 "the way from here carries datagrams of " + std::to_string(local.maxDatagramBytes) +
                     " bytes, and the peer's version needs " + std::to_string(wire::kUsualMinDatagramBytes) +
                     ": install the same version on both ranks, or raise the MTU of the way"};
  }
  return {};
}

void Handshake::start(TimePoint now, Duration timeout) {
  state_ = remote_ ? State::kHeard : State::kGreeting;
  due_ = true;
  expiresAt_ = now + timeout;
}

void Handshake::onHello(const wire::Hello& remote) {
  remote_ = remote;
  if (state_ == State::kGreeting) state_ = State::kHeard;
}

void Handshake::finish() {
  state_ = State::kDone;
  repeatAt_ = kNever;
}

void Handshake::onSent(TimePoint now) {
  due_ = false;
  if (done()) return;
  repeatAt_ = now + repeat_;
  repeat_ = std::min(repeat_ * 2, kLongestRepeat);
}

}  // namespace gloo_bypass
