// A transport as something to poll: an engine of its own drives it, or one that drives others too (transport/pairs).
//
// Thread: as Transport and Pollable say; the rest by the owner, before the first channel or after the last.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "transport/channel/message_channel.h"
#include "transport/progress/progress_engine.h"
#include "transport/sessions/session_table.h"

namespace gloo_bypass {

class PolledTransport : public Transport, public Pollable {
 public:
  ProgressEngine& progress() final { return *engine_; }

  // One of the two, once. A shared engine outlives every call of this transport but its destructor, and closeAll()
  // comes first.
  void startEngine(const ProgressOptions& options) {
    ownEngine_ = std::make_unique<ProgressEngine>(*this, options);
    engine_ = ownEngine_.get();
  }
  void shareEngine(ProgressEngine& engine) { engine_ = &engine; }

  // As PacketPort's, of a channel's port address.
  virtual bool reaches(std::span<const std::byte> /*portAddress*/) const { return true; }
  // As PacketPort's: where the owner has something else to sleep in.
  virtual int doorbell() const { return -1; }
  virtual void sleepElsewhere(bool /*elsewhere*/) {}
  virtual Duration longestSleep() const { return Duration::max(); }

 protected:
  // For the destructor of whoever is polled: afterwards its own engine polls it no more.
  void stopEngine() { ownEngine_.reset(); }
  template <typename Session>
  void drainAndStop(SessionTable<Session>& sessions) {
    if (ownEngine_ != nullptr) sessions.waitUntilDrained(*ownEngine_);
    stopEngine();
  }

 private:
  ProgressEngine* engine_ = nullptr;
  std::unique_ptr<ProgressEngine> ownEngine_;
};

}  // namespace gloo_bypass
