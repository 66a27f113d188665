// Private to software_rnic: completion queues, channels and asynchronous events.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/support/software_rnic_fabric.h"
#include "tests/support/software_rnic_verbs.h"

namespace gloo_bypass::test {
namespace {

// A reader in another thread may be about to acknowledge; nobody takes this long.
constexpr Duration kAcknowledgementLimit = std::chrono::seconds(1);

ibv_comp_channel* createChannel(ibv_context* context) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  if (static_cast<SoftContext*>(context)->soft->removed) return refuseWith<ibv_comp_channel>(EIO);
  auto channel = std::make_unique<SoftChannel>();
  channel->context = context;
  channel->fd = channel->events.fd();
  return fabric.channels.add(std::move(channel));
}

int destroyChannel(ibv_comp_channel* channel) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  if (fabric.channels.find(channel) == nullptr) return 0;
  if (channel->refcnt > 0) return EBUSY;
  fabric.channels.remove(channel);
  return 0;
}

ibv_cq* createQueue(ibv_context* context, int entries, void* userContext, ibv_comp_channel* channel, int vector) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  const SoftDevice& device = *static_cast<SoftContext*>(context)->soft;
  if (device.removed) return refuseWith<ibv_cq>(EIO);
  if (entries < 1 || entries > device.options.maxCompletions || vector < 0 || vector >= context->num_comp_vectors) {
    return refuseWith<ibv_cq>(EINVAL);
  }
  if (fabric.completionQueues.size() >= static_cast<std::size_t>(device.options.maxCompletionQueues)) {
    return refuseWith<ibv_cq>(ENOMEM);
  }
  auto queue = std::make_unique<SoftCompletionQueue>();
  queue->context = context;
  queue->channel = channel;
  queue->cq_context = userContext;
  queue->cqe = entries;
  if (channel != nullptr) ++channel->refcnt;
  return fabric.completionQueues.add(std::move(queue));
}

int resizeQueue(ibv_cq* cq, int entries) {
  Fabric& fabric = Fabric::instance();
  const Fabric::Lock lock(fabric);
  auto* const queue = fabric.completionQueues.find(cq);
  if (queue == nullptr) return EINVAL;
  const SoftDevice& device = *static_cast<SoftContext*>(cq->context)->soft;
  if (device.removed) return EIO;
  if (!device.options.resizesCompletionQueues) return EOPNOTSUPP;
  const std::lock_guard entriesLock(queue->guard);
  if (entries < 1 || entries > device.options.maxCompletions ||
      static_cast<std::size_t>(entries) < queue->entries.size()) {
    return EINVAL;
  }
  queue->cqe = entries;
  return 0;
}

int destroyQueue(ibv_cq* cq) {
  Fabric& fabric = Fabric::instance();
  SoftCompletionQueue* queue = nullptr;
  {
    const Fabric::Lock lock(fabric);
    queue = fabric.completionQueues.find(cq);
    if (queue == nullptr) return 0;
    if (queue->users > 0) return EBUSY;
    fabric.forget(*queue);
    if (cq->channel != nullptr) {
      static_cast<SoftChannel*>(cq->channel)->events.removeIf([queue](const auto* event) { return event == queue; });
    }
    forgetAsyncEvents(cq->context, &decltype(ibv_async_event::element)::cq, cq, isCompletionQueueEvent);
  }
  awaitAcknowledgements(queue->completionEvents, "completion queue");
  awaitAcknowledgements(queue->asyncEvents, "completion queue");
  const Fabric::Lock lock(fabric);
  if (cq->channel != nullptr) --cq->channel->refcnt;
  fabric.completionQueues.remove(cq);
  return 0;
}

int getCompletionEvent(ibv_comp_channel* channel, ibv_cq** cq, void** userContext) {
  SoftCompletionQueue* queue = nullptr;
  const auto taken = [](SoftCompletionQueue* event) { ++event->completionEvents.delivered; };
  if (!static_cast<SoftChannel*>(channel)->events.take(queue, taken)) return -1;
  *cq = queue;
  *userContext = queue->cq_context;
  return 0;
}

void acknowledgeCompletionEvents(ibv_cq* cq, unsigned count) {
  static_cast<SoftCompletionQueue*>(cq)->completionEvents.acknowledged += count;
}

EventLedger* ledgerOf(const ibv_async_event& event) {
  if (isQueuePairEvent(event.event_type)) return &static_cast<SoftQueuePair*>(event.element.qp)->asyncEvents;
  if (isCompletionQueueEvent(event.event_type))
    return &static_cast<SoftCompletionQueue*>(event.element.cq)->asyncEvents;
  return nullptr;
}

int getAsyncEvent(ibv_context* context, ibv_async_event* event) {
  const auto taken = [](const ibv_async_event& read) {
    if (EventLedger* const ledger = ledgerOf(read)) ++ledger->delivered;
  };
  return static_cast<SoftContext*>(context)->events.take(*event, taken) ? 0 : -1;
}

void acknowledgeAsyncEvent(ibv_async_event* event) {
  if (EventLedger* const ledger = ledgerOf(*event)) ++ledger->acknowledged;
}

const char* eventTypeName(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return "CQ error";
    case IBV_EVENT_QP_FATAL:
      return "local work queue catastrophic error";
    case IBV_EVENT_QP_REQ_ERR:
      return "invalid request local work queue error";
    case IBV_EVENT_QP_ACCESS_ERR:
      return "local access violation work queue error";
    case IBV_EVENT_COMM_EST:
      return "communication established";
    case IBV_EVENT_DEVICE_FATAL:
      return "local catastrophic error";
    case IBV_EVENT_PORT_ACTIVE:
      return "port active";
    case IBV_EVENT_PORT_ERR:
      return "port error";
    default:
      return "unknown";
  }
}

const char* completionStatusName(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return "success";
    case IBV_WC_LOC_LEN_ERR:
      return "local length error";
    case IBV_WC_LOC_QP_OP_ERR:
      return "local QP operation error";
    case IBV_WC_LOC_PROT_ERR:
      return "local protection error";
    case IBV_WC_WR_FLUSH_ERR:
      return "Work Request Flushed Error";
    case IBV_WC_REM_INV_REQ_ERR:
      return "remote invalid request error";
    case IBV_WC_REM_ACCESS_ERR:
      return "remote access error";
    case IBV_WC_REM_OP_ERR:
      return "remote operation error";
    case IBV_WC_RETRY_EXC_ERR:
      return "transport retry counter exceeded";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "RNR retry counter exceeded";
    case IBV_WC_FATAL_ERR:
      return "fatal error";
    default:
      return "unknown";
  }
}

}  // namespace

void awaitAcknowledgements(const EventLedger& ledger, const char* object) {
  const TimePoint limit = rnicNow() + kAcknowledgementLimit;
  while (ledger.delivered != ledger.acknowledged) {
    if (rnicNow() > limit) {
      std::fprintf(stderr, "software RNIC: a %s is destroyed with %u events read and %u acknowledged\n", object,
                   ledger.delivered.load(), ledger.acknowledged.load());
      std::abort();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool isQueuePairEvent(ibv_event_type type) {
  return type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR || type == IBV_EVENT_QP_ACCESS_ERR ||
         type == IBV_EVENT_COMM_EST;
}
bool isCompletionQueueEvent(ibv_event_type type) { return type == IBV_EVENT_CQ_ERR; }

void fillCompletionVerbs(verbs::VerbsApi& api) {
  api.getAsyncEvent = getAsyncEvent;
  api.ackAsyncEvent = acknowledgeAsyncEvent;
  api.eventTypeName = eventTypeName;
  api.completionStatusName = completionStatusName;
  api.createCompletionChannel = createChannel;
  api.destroyCompletionChannel = destroyChannel;
  api.createCompletionQueue = createQueue;
  api.resizeCompletionQueue = resizeQueue;
  api.destroyCompletionQueue = destroyQueue;
  api.getCompletionEvent = getCompletionEvent;
  api.ackCompletionEvents = acknowledgeCompletionEvents;
}

}  // namespace gloo_bypass::test
