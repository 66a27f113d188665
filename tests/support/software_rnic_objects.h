// Private to software_rnic: what the verbs make. Each derives from what libibverbs' users see of it.
#pragma once

#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/support/software_rnic.h"
#include "transport/base/check.h"

namespace gloo_bypass::test {

// Events behind a file descriptor that a program may poll, and read blocking or not.
template <typename Event>
class EventQueue {
 public:
  EventQueue() : fd_(::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC)) { GLOO_BYPASS_CHECK(fd_ >= 0); }
  ~EventQueue() { ::close(fd_); }
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  int fd() const { return fd_; }

  void push(const Event& event) {
    const std::lock_guard lock(guard_);
    events_.push_back(event);
    const std::uint64_t one = 1;
    GLOO_BYPASS_CHECK(::write(fd_, &one, sizeof(one)) == sizeof(one));
  }

  // As read(2): false with errno. `taken(event)` is called before anybody else can look at the queue.
  template <typename Taken>
  bool take(Event& event, const Taken& taken) {
    for (;;) {
      std::uint64_t one = 0;
      if (::read(fd_, &one, sizeof(one)) != static_cast<ssize_t>(sizeof(one))) return false;
      const std::lock_guard lock(guard_);
      if (events_.empty()) continue;  // removed in the meantime
      event = events_.front();
      events_.pop_front();
      taken(event);
      return true;
    }
  }

  // Events nobody has read yet.
  template <typename Predicate>
  void removeIf(const Predicate& predicate) {
    const std::lock_guard lock(guard_);
    const auto kept = std::remove_if(events_.begin(), events_.end(), predicate);
    for (auto removed = std::distance(kept, events_.end()); removed > 0; --removed) {
      std::uint64_t one = 0;
      const iovec buffer{&one, sizeof(one)};
      // Fails if a reader has just taken this one off the descriptor: it will find the queue empty.
      [[maybe_unused]] const auto size = ::preadv2(fd_, &buffer, 1, -1, RWF_NOWAIT);
    }
    events_.erase(kept, events_.end());
  }

 private:
  const int fd_;
  std::mutex guard_;
  std::deque<Event> events_;
};

// Slots of a work queue. Taken when a request is posted, given back when a completion that covers it is polled.
struct QueueRoom {
  std::atomic<std::uint32_t> used{0};
};

// Events that a program was given and those it acknowledged; an object goes when they are equal.
struct EventLedger {
  std::atomic<std::uint32_t> delivered{0};
  std::atomic<std::uint32_t> acknowledged{0};
};

struct SoftDevice : ibv_device {
  SoftwareDeviceOptions options;
  bool removed = false;
  std::uint64_t triesUntilUp = 0;  // 0: a port that is down stays down

  bool reachable() const { return options.portUp && !removed; }
};

struct SoftContext : ibv_context {
  SoftDevice* soft = nullptr;
  EventQueue<ibv_async_event> events;
};

struct SoftProtectionDomain : ibv_pd {
  int users = 0;
};

struct SoftRegion : ibv_mr {
  int access = 0;
  std::uint64_t pinnedBytes = 0;
  int windows = 0;  // bound to it
};

struct SoftQueuePair;

struct SoftWindow : ibv_mw {
  std::uint32_t key = 0;  // the adapter's; the program keeps the one in ibv_mw
  // While bound; else null.
  SoftRegion* region = nullptr;
  const SoftQueuePair* queuePair = nullptr;
  std::uint64_t address = 0, length = 0;
  int access = 0;
};

struct SoftCompletionQueue;

struct SoftChannel : ibv_comp_channel {
  EventQueue<SoftCompletionQueue*> events;
};

struct Completion {
  ibv_wc entry{};
  std::shared_ptr<QueueRoom> room;  // of the queue as it was then: one that was reset has new room
  std::uint32_t slots = 0;          // given back to `room` when this is polled
};

struct SoftCompletionQueue : ibv_cq {
  std::mutex guard;  // over the next three, and cqe
  std::deque<Completion> entries;
  bool armed = false;  // the next completion makes an event
  bool overrun = false;
  int users = 0;
  EventLedger completionEvents;
  EventLedger asyncEvents;
};

struct ReceiveRequest {
  std::uint64_t id = 0;
  std::vector<ibv_sge> segments;
};

struct ReceiveQueue {
  std::uint32_t maxRequests = 0;
  std::uint32_t maxSegments = 0;
  std::mutex guard;
  std::deque<ReceiveRequest> requests;
  std::shared_ptr<QueueRoom> room = std::make_shared<QueueRoom>();

  // 0, or an errno with `*bad` at the request that was not taken.
  int post(const ibv_recv_wr* list, ibv_recv_wr** bad);
  std::optional<ReceiveRequest> take();
};

struct SendRequest {
  std::uint64_t id = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  unsigned flags = 0;
  std::uint64_t remoteAddress = 0;
  std::uint32_t remoteKey = 0;
  std::vector<ibv_sge> segments;
  std::vector<std::byte> inlineData;
  std::uint64_t length = 0;
  // IBV_WR_BIND_MW: `remoteKey` is the key that the program believes the window has. IBV_WR_LOCAL_INV: it is the key.
  std::uint32_t newKey = 0;
  ibv_mw_bind_info bind{};
  TimePoint due{};
};

// The request at the head of a send queue, and how far it has come.
struct Execution {
  SendRequest request;
  std::uint64_t offset = 0;
  bool checked = false;       // what is checked once was
  bool timerRunning = false;  // the last try was lost
  bool acknowledgementLost = false;
  ibv_wc_status lostStatus = IBV_WC_SUCCESS;
  Duration acknowledgementLate{};
  bool delivered = false;  // only that acknowledgement is still to come
  int retriesLeft = 0;
  int rnrRetriesLeft = 0;
};

struct SoftQueuePair : ibv_qp {
  SoftContext* owner = nullptr;
  ibv_qp_cap limits{};
  std::shared_ptr<QueueRoom> room = std::make_shared<QueueRoom>();  // of the send queue
  ReceiveQueue receives;
  std::atomic<ibv_qp_state> hardwareState{IBV_QPS_RESET};

  std::mutex guard;  // over the next three, and room
  std::deque<SendRequest> sends;
  std::uint32_t queuedReads = 0;
  bool scheduled = false;  // the adapter knows that there is work

  // The adapter's, under its lock.
  bool dead = false;
  ibv_qp_attr attributes{};
  ibv_gid localGid{};
  std::optional<Execution> execution;
  std::uint32_t unreported = 0;  // executed without completion since the last one
  TimePoint resumeAt{};
  std::optional<ReceiveRequest> receiving;  // a message is arriving into it
  bool heardInReadyToReceive = false;
  EventLedger asyncEvents;
};

// Owns objects by address. An address that is not in it was destroyed before, or never made.
template <typename Object>
class Registry {
 public:
  Object* add(std::unique_ptr<Object> object) {
    Object* const raw = object.get();
    objects_.emplace(raw, std::move(object));
    return raw;
  }
  bool contains(const void* address) const { return objects_.contains(address); }
  // Null if it was abandoned.
  Object* find(const void* address) const {
    const auto found = objects_.find(address);
    if (found != objects_.end()) return found->second.get();
    GLOO_BYPASS_CHECK(abandoned_.contains(address));  // else: destroyed twice
    return nullptr;
  }
  std::unique_ptr<Object> remove(const void* address) {
    auto node = objects_.extract(address);
    return node.empty() ? nullptr : std::move(node.mapped());
  }
  // Destroying it later is harmless.
  void abandon(const void* address) { abandoned_.insert(objects_.extract(address)); }
  void abandon() {
    abandoned_.merge(objects_);
    objects_.clear();
  }
  std::size_t size() const { return objects_.size(); }
  auto begin() const { return objects_.begin(); }
  auto end() const { return objects_.end(); }

 private:
  // By the address that the program sees.
  std::unordered_map<const void*, std::unique_ptr<Object>> objects_;
  std::unordered_map<const void*, std::unique_ptr<Object>> abandoned_;
};

}  // namespace gloo_bypass::test
