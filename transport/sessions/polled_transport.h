// A transport that an engine polls: its own engine, or one shared with other transports (transport/pairs).
//
// Threads: as in Transport and Pollable. The owner makes all other calls before the first channel or after the last.
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

  // Call one of the two, once. A shared engine must outlive every call of this transport but its destructor; call
  // closeAll() first.
  void startEngine(const ProgressOptions& options) {
    ownEngine_ = std::make_unique<ProgressEngine>(*this, options);
    engine_ = ownEngine_.get();
  }
  void shareEngine(ProgressEngine& engine) { engine_ = &engine; }

  // As in PacketPort, for a channel's port address.
  virtual bool reaches(std::span<const std::byte> /*portAddress*/) const { return true; }
  // As in PacketPort: for an owner that sleeps elsewhere.
  virtual int doorbell() const { return -1; }
  virtual void sleepElsewhere(bool /*elsewhere*/) {}
  virtual Duration longestSleep() const { return Duration::max(); }

 protected:
  // For the destructor of the derived class: from here on its own engine does not poll it.
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
