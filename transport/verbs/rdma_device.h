// What the sessions of one transport share, and what they ask of it. Private to transport/verbs.
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
  // Handles completions of this session alone until `done` or the time is over; those of others wait. For the calls
  // that must not return while the adapter still touches the user's memory. Returns whether `done` came true.
  virtual bool drain(RdmaSession& session, const std::function<bool()>& done, Duration timeout) = 0;

  // All that the adapters had completed when this round began has been handled.
  virtual bool caughtUp() const = 0;
  // Takes all that the adapters have completed, to be handled later. Once a queue pair is gone, before the room of its
  // completions is another's.
  virtual void takeCompletions() = 0;

  const VerbsApi& api;
  const TransportConfig config;
  // Destroyed in reverse order: what is made on a rail goes before it.
  std::vector<std::unique_ptr<RailQueues>> rails;
  std::unique_ptr<RegisteredSlots> slots;  // for frames, on rail 0
  std::unique_ptr<RegistrationCache> registrations;
  std::unique_ptr<ControlPlane> control;
  BufferPool staging;
  bool completedSome = false;  // an observer was told so in this round

 protected:
  RdmaDevice(const VerbsApi& verbs, const TransportConfig& configuration) : api(verbs), config(configuration) {}
  virtual ~RdmaDevice() = default;
};

}  // namespace gloo_bypass::verbs
