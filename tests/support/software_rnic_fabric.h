// Private to software_rnic: the devices, everything made on them, and the thread that executes work requests.
//
//   post --doorbell--> run queue --step--> run queue (more to do)
//                          ^  `----------> idle     (send queue empty, or the queue pair cannot send)
//                          |  `----------> waiting  (time-out, receiver not ready, latency) --time--> run queue
//                          `--- error or destruction takes it out of wherever it is
//
// Locks, in this order: the fabric's (control verbs, and each step of the adapter), a queue pair's, a receive queue's,
// a completion queue's, an event queue's; the doorbell's is a leaf. The data path takes only the ones of its own
// queues.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/software_rnic_objects.h"

namespace gloo_bypass::test {

TimePoint rnicNow();

class Fabric {
 public:
  static Fabric& instance();
  ~Fabric();

  // Control verbs go before the adapter's next step.
  class Lock {
   public:
    explicit Lock(Fabric& fabric) {
      fabric.controlWaiters_.fetch_add(1);
      lock_ = std::unique_lock(fabric.guard_);
      fabric.controlWaiters_.fetch_sub(1);
    }

   private:
    std::unique_lock<std::mutex> lock_;
  };

  // With the lock.
  SoftDevice* findDevice(const std::string& name);
  void setDevices(const std::vector<SoftwareDeviceOptions>& options);
  void reset();
  void reschedule(SoftQueuePair& qp);  // wherever it is, it runs next
  void forget(SoftQueuePair& qp);      // the adapter does not touch it until it is scheduled again
  void forget(SoftCompletionQueue& cq) { std::erase(overruns_, &cq); }
  void fail(SoftQueuePair& qp);  // to the error state; what is outstanding is flushed
  void kill(SoftQueuePair& qp) { qp.dead = true; }
  void complete(ibv_cq* cq, Completion completion);
  void raise(SoftContext& context, ibv_event_type type, int port = 0);
  void raise(SoftQueuePair& qp, ibv_event_type type);
  void setPort(SoftDevice& device, bool up);
  void tryLost();  // some request has got no answer
  void remove(SoftDevice& device);
  static void unbind(SoftWindow& window);
  LiveObjects liveObjects() const;
  static bool onDevice(const SoftContext& context, const SoftDevice& device) { return context.soft == &device; }

  // Without the lock.
  void ringDoorbell(SoftQueuePair& qp);
  void contextOpened();  // starts the thread
  void contextClosed();  // stops it with the last one
  void setPaused(bool paused);

  std::deque<std::unique_ptr<SoftDevice>> devices;
  std::size_t deviceLists = 0;
  Registry<SoftContext> contexts;
  Registry<SoftProtectionDomain> domains;
  Registry<SoftRegion> regions;
  Registry<SoftWindow> windows;
  Registry<SoftChannel> channels;
  Registry<SoftCompletionQueue> completionQueues;
  Registry<SoftQueuePair> queuePairs;
  std::unordered_map<std::uint32_t, SoftQueuePair*> queuePairByNumber;
  std::unordered_map<std::uint32_t, SoftRegion*> regionByKey;    // lkey and rkey are the same
  std::unordered_map<std::uint32_t, SoftWindow*> windowByIndex;  // the upper 24 bits of its keys
  std::uint32_t nextNumber = 17;
  std::uint32_t nextKey = 1;
  std::uint64_t registrationLimit = UINT64_MAX;
  std::vector<OperationFault> faults;
  SoftwareRnicCounters counters;

  std::atomic<Duration::rep> latency{0};

 private:
  friend class Lock;
  Fabric();
  void run();
  void takeDoorbells();
  void resumeDue();
  void idle(TimePoint deadline);
  void raiseOverruns();
  TimePoint earliestResume() const;

  std::mutex guard_;
  std::atomic<int> controlWaiters_{0};
  std::deque<SoftQueuePair*> running_;
  std::vector<SoftQueuePair*> waiting_;
  std::vector<SoftCompletionQueue*> overruns_;
  std::vector<std::unique_ptr<SoftDevice>> retired_;

  std::mutex doorbellGuard_;
  std::condition_variable doorbellRang_;
  std::vector<SoftQueuePair*> doorbells_;
  bool paused_ = false;
  bool kicked_ = false;
  bool stopping_ = false;
  std::atomic<bool> awake_{false};  // a doorbell, a kick or a stop waits

  std::mutex lifecycle_;
  std::size_t openContexts_ = 0;
  std::thread thread_;
};

// One step of one queue pair: a piece of a message, or the end of one.
enum class Step : std::uint8_t { kAgain, kIdle, kWait };
Step executeStep(Fabric& fabric, SoftQueuePair& qp);

}  // namespace gloo_bypass::test
