#include "tests/support/software_rnic_fabric.h"

#include <chrono>

namespace gloo_bypass::test {
namespace {

// How long the adapter looks for work before it sleeps: longer than a program needs to answer a completion. Short
// against a test, and yields, since two cores are the norm.
constexpr Duration kSpin = std::chrono::microseconds(20);

void retire(std::vector<std::unique_ptr<SoftDevice>>& retired, std::deque<std::unique_ptr<SoftDevice>>& devices) {
  for (auto& device : devices) retired.push_back(std::move(device));
  devices.clear();
}

}  // namespace

TimePoint rnicNow() {
  return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
}

Fabric& Fabric::instance() {
  static Fabric fabric;
  return fabric;
}

Fabric::Fabric() { setDevices(defaultSoftwareDevices()); }

Fabric::~Fabric() {
  {
    const std::lock_guard lock(doorbellGuard_);
    stopping_ = true;
    awake_ = true;
  }
  doorbellRang_.notify_all();
  if (thread_.joinable()) thread_.join();
}

SoftDevice* Fabric::findDevice(const std::string& name) {
  for (const auto& device : devices) {
    if (device->options.name == name) return device.get();
  }
  GLOO_BYPASS_CHECK(!"a device of this name");
  return nullptr;
}

void Fabric::setDevices(const std::vector<SoftwareDeviceOptions>& options) {
  retire(retired_, devices);
  for (const auto& option : options) {
    auto device = std::make_unique<SoftDevice>();
    device->options = option;
    device->node_type = IBV_NODE_CA;
    device->transport_type = IBV_TRANSPORT_IB;
    option.name.copy(device->name, sizeof(device->name) - 1);
    ("uverbs" + std::to_string(devices.size())).copy(device->dev_name, sizeof(device->dev_name) - 1);
    devices.push_back(std::move(device));
  }
}

void Fabric::reset() {
  for (const auto& [address, qp] : queuePairs) forget(*qp);
  overruns_.clear();
  queuePairByNumber.clear();
  regionByKey.clear();
  windowByIndex.clear();
  queuePairs.abandon();
  completionQueues.abandon();
  channels.abandon();
  regions.abandon();
  windows.abandon();
  domains.abandon();
  contexts.abandon();
  deviceLists = 0;
  registrationLimit = UINT64_MAX;
  faults.clear();
  counters = {};
  latency = 0;
  setDevices(defaultSoftwareDevices());
}

void Fabric::reschedule(SoftQueuePair& qp) {
  std::erase(waiting_, &qp);
  std::erase(running_, &qp);
  {
    const std::lock_guard lock(qp.guard);
    qp.scheduled = true;
  }
  running_.push_back(&qp);
  {
    const std::lock_guard lock(doorbellGuard_);
    std::erase(doorbells_, &qp);
    kicked_ = true;
    awake_ = true;
  }
  doorbellRang_.notify_one();
}

void Fabric::forget(SoftQueuePair& qp) {
  std::erase(waiting_, &qp);
  std::erase(running_, &qp);
  const std::lock_guard lock(doorbellGuard_);
  std::erase(doorbells_, &qp);
}

void Fabric::fail(SoftQueuePair& qp) {
  const ibv_qp_state state = qp.hardwareState;
  if (state == IBV_QPS_ERR) return;
  qp.hardwareState = IBV_QPS_ERR;
  reschedule(qp);
}

void Fabric::complete(ibv_cq* queue, Completion completion) {
  auto& cq = *static_cast<SoftCompletionQueue*>(queue);
  const std::lock_guard lock(cq.guard);
  if (cq.overrun) return;
  if (cq.entries.size() >= static_cast<std::size_t>(cq.cqe)) {
    cq.overrun = true;
    overruns_.push_back(&cq);
    return;
  }
  ++counters.completions;
  counters.failedCompletions += completion.entry.status != IBV_WC_SUCCESS ? 1 : 0;
  cq.entries.push_back(std::move(completion));
  if (!cq.armed || cq.channel == nullptr) return;
  cq.armed = false;
  ++counters.completionEvents;
  static_cast<SoftChannel*>(cq.channel)->events.push(&cq);
}

void Fabric::raise(SoftContext& context, ibv_event_type type, int port) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.port_num = port;
  ++counters.asyncEvents;
  context.events.push(event);
}

void Fabric::raise(SoftQueuePair& qp, ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.qp = &qp;
  ++counters.asyncEvents;
  qp.owner->events.push(event);
}

// A completion was lost: the queue is useless from now on, and so is what reports to it.
void Fabric::raiseOverruns() {
  while (!overruns_.empty()) {
    SoftCompletionQueue* const cq = overruns_.back();
    overruns_.pop_back();
    ibv_async_event event{};
    event.event_type = IBV_EVENT_CQ_ERR;
    event.element.cq = cq;
    ++counters.asyncEvents;
    static_cast<SoftContext*>(cq->context)->events.push(event);
    for (const auto& [address, qp] : queuePairs) {
      if ((qp->send_cq != cq && qp->recv_cq != cq) || qp->hardwareState == IBV_QPS_ERR) continue;
      raise(*qp, IBV_EVENT_QP_FATAL);
      fail(*qp);
    }
  }
}

void Fabric::setPort(SoftDevice& device, bool up) {
  device.triesUntilUp = 0;
  if (device.options.portUp == up) return;
  device.options.portUp = up;
  for (const auto& [address, context] : contexts) {
    if (onDevice(*context, device)) raise(*context, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, 1);
  }
}

void Fabric::tryLost() {
  for (const auto& device : devices) {
    if (device->triesUntilUp > 0 && --device->triesUntilUp == 0) setPort(*device, true);
  }
}

void Fabric::remove(SoftDevice& device) {
  device.removed = true;
  for (const auto& [address, context] : contexts) {
    if (onDevice(*context, device)) raise(*context, IBV_EVENT_DEVICE_FATAL);
  }
  for (const auto& [address, qp] : queuePairs) {
    if (onDevice(*qp->owner, device)) fail(*qp);
  }
}

LiveObjects Fabric::liveObjects() const {
  return {deviceLists,    contexts.size(), domains.size(),          regions.size(),
          windows.size(), channels.size(), completionQueues.size(), queuePairs.size()};
}

void Fabric::ringDoorbell(SoftQueuePair& qp) {
  {
    const std::lock_guard lock(doorbellGuard_);
    doorbells_.push_back(&qp);
    awake_ = true;
  }
  doorbellRang_.notify_one();
}

void Fabric::unbind(SoftWindow& window) {
  if (window.region != nullptr) --window.region->windows;
  window.region = nullptr;
  window.queuePair = nullptr;
}

void Fabric::contextOpened() {
  const std::lock_guard lock(lifecycle_);
  if (openContexts_++ > 0) return;
  stopping_ = false;
  thread_ = std::thread([this] { run(); });
}

void Fabric::contextClosed() {
  const std::lock_guard lock(lifecycle_);
  if (--openContexts_ > 0) return;
  {
    const std::lock_guard doorbell(doorbellGuard_);
    stopping_ = true;
    awake_ = true;
  }
  doorbellRang_.notify_all();
  thread_.join();
}

void Fabric::setPaused(bool paused) {
  // With the lock: when this returns no step is under way.
  const Lock lock(*this);
  {
    const std::lock_guard doorbell(doorbellGuard_);
    paused_ = paused;
    kicked_ = true;
    awake_ = true;
  }
  doorbellRang_.notify_one();
}

void Fabric::takeDoorbells() {
  const std::lock_guard lock(doorbellGuard_);
  running_.insert(running_.end(), doorbells_.begin(), doorbells_.end());
  doorbells_.clear();
  kicked_ = false;
  awake_ = stopping_;
}

void Fabric::resumeDue() {
  if (waiting_.empty()) return;
  const TimePoint now = rnicNow();
  const auto due = std::stable_partition(waiting_.begin(), waiting_.end(),
                                         [now](const SoftQueuePair* qp) { return qp->resumeAt > now; });
  running_.insert(running_.end(), due, waiting_.end());
  waiting_.erase(due, waiting_.end());
}

TimePoint Fabric::earliestResume() const {
  TimePoint earliest = kNever;
  for (const SoftQueuePair* qp : waiting_) earliest = std::min(earliest, qp->resumeAt);
  return earliest;
}

void Fabric::idle(TimePoint deadline) {
  const TimePoint spinUntil = std::min(rnicNow() + kSpin, deadline);
  while (!awake_ && rnicNow() < spinUntil) std::this_thread::yield();
  std::unique_lock lock(doorbellGuard_);
  const auto woken = [this] { return awake_.load(); };
  if (deadline == kNever) {
    doorbellRang_.wait(lock, woken);
  } else {
    doorbellRang_.wait_until(lock, std::chrono::steady_clock::time_point(deadline.time_since_epoch()), woken);
  }
}

void Fabric::run() {
  for (;;) {
    while (controlWaiters_ > 0) std::this_thread::yield();
    std::unique_lock lock(guard_);
    if (awake_) takeDoorbells();
    bool paused = false;
    {
      const std::lock_guard doorbell(doorbellGuard_);
      if (stopping_) return;
      paused = paused_;
    }
    if (!paused) resumeDue();
    if (paused || running_.empty()) {
      const TimePoint deadline = paused ? kNever : earliestResume();
      lock.unlock();
      idle(deadline);
      continue;
    }
    SoftQueuePair* const qp = running_.front();
    running_.pop_front();
    const Step step = executeStep(*this, *qp);
    if (step == Step::kAgain) running_.push_back(qp);
    if (step == Step::kWait) waiting_.push_back(qp);
    raiseOverruns();
  }
}

}  // namespace gloo_bypass::test
