// Resources and services that one transport offers its sessions. Private to transport/verbs.
//
// Thread: the progress engine's exclusive access.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "transport/base/buffer_pool.h"
#include "transport/base/config.h"
#include "transport/base/time.h"
#include "transport/verbs/control_plane.h"
#include "transport/verbs/rail_queues.h"
#include "transport/verbs/registered_slots.h"
#include "transport/verbs/registration_cache.h"

namespace gloo_bypass::verbs {

class RdmaSession;

class RdmaDevice {
 public:
  // Sessions have keys, and the right to read a message ends with it.
  bool keyed() const { return config.security != Security::kOff; }

  // Handles completions of this session alone until `done` or the timeout; others wait. For calls that must not return
  // while the adapter still touches the user's memory. Returns the last `done()`.
  virtual bool drain(RdmaSession& session, const std::function<bool()>& done, Duration timeout) = 0;

  // All completions that existed when this round began are handled.
  virtual bool caughtUp() const = 0;
  // Fetches all completions, to be handled later. Call it after destroying a queue pair, before another may use the
  // room that its completions had reserved.
  virtual void takeCompletions() = 0;

  const VerbsApi& api;
  const TransportConfig config;
  // Destroyed in reverse order: objects made on a rail go before it.
  std::vector<std::unique_ptr<RailQueues>> rails;
  std::unique_ptr<RegistrationCache> registrations;
  std::unique_ptr<RegisteredSlots> slots;  // for frames, on rail 0
  std::unique_ptr<ControlPlane> control;
  GidBytes controlIp{};  // where it listens
  BufferPool staging;
  bool completedSome = false;  // an observer was notified in this round

 protected:
  RdmaDevice(const VerbsApi& verbs, const TransportConfig& configuration) : api(verbs), config(configuration) {}
  virtual ~RdmaDevice() = default;
};

}  // namespace gloo_bypass::verbs
