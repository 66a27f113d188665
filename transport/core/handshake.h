// The exchange of settings before anything else. Both sides send kHello until each knows that the other has its own.
// Pure.
//
//            start()                peer's Hello              its kFlagHelloSeen, or any other datagram
//   kIdle ------------> kGreeting ----------------> kHeard --------------------------> kDone
//
// A Hello that comes before start() is kept (the last one) and answered then.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/base/status.h"
#include "transport/base/time.h"
#include "transport/wire/packet.h"

namespace gloo_bypass {

// Settings that cannot talk to each other, both named; nullopt: they can.
std::optional<Error> compareSettings(const wire::Hello& local, const wire::Hello& remote);

class Handshake {
 public:
  enum class State : std::uint8_t { kIdle, kGreeting, kHeard, kDone };

  void start(TimePoint now, Duration timeout);
  void onHello(const wire::Hello& remote);
  void finish();

  bool done() const { return state_ == State::kDone; }
  bool heard() const { return remote_.has_value(); }
  const std::optional<wire::Hello>& remote() const { return remote_; }
  void forgetRemote() { remote_.reset(); }

  // One Hello is to go out.
  bool due() const { return due_; }
  void makeDue() { due_ = true; }
  void stop() {
    due_ = false;
    repeatAt_ = kNever;
  }
  void onSent(TimePoint now);
  void onTimeout(TimePoint now) { due_ = due_ || now >= repeatAt_; }
  TimePoint deadline() const { return repeatAt_; }
  bool expired(TimePoint now) const { return !done() && now >= expiresAt_; }
  TimePoint expiry() const { return done() ? kNever : expiresAt_; }

 private:
  static constexpr Duration kFirstRepeat = std::chrono::milliseconds(20);
  static constexpr Duration kLongestRepeat = std::chrono::milliseconds(500);

  State state_ = State::kIdle;
  std::optional<wire::Hello> remote_;
  bool due_ = false;
  Duration repeat_ = kFirstRepeat;
  TimePoint repeatAt_ = kNever, expiresAt_ = kNever;
};

}  // namespace gloo_bypass
