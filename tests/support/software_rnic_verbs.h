// Private to software_rnic: the control verbs, by file.
#pragma once

#include "tests/support/software_rnic_objects.h"

namespace gloo_bypass::test {

void fillDeviceVerbs(verbs::VerbsApi& api);  // software_rnic_device.cc: devices, contexts, protection domains, regions
void fillCompletionVerbs(
    verbs::VerbsApi& api);  // software_rnic_completion.cc: completion queues, channels, asynchronous events
void fillQueueVerbs(verbs::VerbsApi& api);  // software_rnic_queue_pair.cc: queue pairs

// Sets errno, for the verbs that return a pointer.
template <typename Object>
Object* refuseWith(int error) {
  errno = error;
  return nullptr;
}

// Before an object goes: events about it that were read must have been acknowledged. libibverbs waits for that without
// end; here it ends the process after a second. Without the fabric's lock.
void awaitAcknowledgements(const EventLedger& ledger, const char* object);

// Events about `object` that nobody has read go with it.
template <typename Member, typename Object>
void forgetAsyncEvents(ibv_context* context, Member member, const Object* object, bool (*about)(ibv_event_type)) {
  static_cast<SoftContext*>(context)->events.removeIf(
      [&](const ibv_async_event& event) { return about(event.event_type) && event.element.*member == object; });
}

bool isQueuePairEvent(ibv_event_type type);
bool isCompletionQueueEvent(ibv_event_type type);

}  // namespace gloo_bypass::test
