// The ranks that call collectives together: what a door (plugin/python, trainer/, tools/) holds. It chooses who runs an
// operation: flat shared memory among ranks of one host, if the transport has memory links, that and message channels
// between hosts if there are several that are not far from each other, and message channels alone otherwise.
//
// Thread: any. Operations run in the order in which they were started. run() executes on the caller's thread if nothing
// is under way before it, which costs no hand-over; what start() began executes on the group's own thread, or on that
// of whoever waits for it in assist(). Over channels it may begin before its turn (Executor::announce); its report does
// not come before its turn.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/executor.h"
#include "collectives/operation.h"
#include "collectives/rendezvous.h"
#include "collectives/schedule/choices.h"
#include "transport/base/status.h"
#include "transport/base/time.h"

namespace gloo_bypass::collectives {

struct GroupOptions {
  int rank = 0, size = 1;
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  // of making the group, and of a call without its own
  std::string transport;  // DPDK, UDP, RDMA: what GLOO_DEVICE_TRANSPORT says; empty: DPDK
  std::string interface;  // as Gloo's device gets it; empty: chosen by the transport
  // Instead of those that the settings name. Rank 0's hold for all; another rank may have the same or none.
  std::optional<ChoiceTable> choices;
  std::string host =
      {};  // ranks with the same one are on one host; empty: those with the same kernel, network and user
};

// A message between two ranks of the group (torch.distributed's send and recv).
struct Message {
  static constexpr int kAnyPeer = -1;
  int peer = 0;  // kAnyPeer: a receive from whoever sends first with this tag
  std::uint32_t tag = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

class Group {
 public:
  // Blocks until all ranks have come, at most for the timeout. Errors: kTimedOut with the ranks that did not come;
  // kConfiguration if ranks differ in version or settings, with both values; the transport's.
  static Result<std::unique_ptr<Group>> make(const GroupOptions& options, std::shared_ptr<Rendezvous> rendezvous);
  virtual ~Group() = default;  // leaves in good order: peers still get what was sent

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Runs one operation to its end. Zero timeout: the group's. Errors: Executor::run's, and kInvalidArgument for a call
  // that this rank alone can see is wrong (faultOf); the group goes on after the latter.
  virtual Status run(const Call& call, std::chrono::milliseconds timeout) = 0;
  // Copies the call's spans (not the memory they point to). `done` runs once, on the thread that ends the operation,
  // without locks held; it must not block, and may start further operations.
  virtual void start(const Call& call, std::chrono::milliseconds timeout, std::function<void(Status)> done) = 0;

  // For a thread that waits for an operation that start() began: runs it here, and what comes before it, if no thread
  // has begun them yet. So a wait that follows at once costs no hand-over. Returns when `reached`, or when only waiting
  // is left.
  virtual void assist(const std::function<bool()>& reached) = 0;

  // A small operation that start() began ends only when somebody waits for it in assist(), with the next operation, or
  // after this. For a caller that only `done` reaches.
  virtual void hasten() = 0;

  // Messages are independent of the collectives, and any number may be under way. `done` gets the peer that sent; it
  // runs on whichever thread drives progress, perhaps before these return, and must neither block nor call the group.
  virtual void send(const Message& message, std::function<void(Status, int peer)> done) = 0;
  virtual void receive(const Message& message, std::function<void(Status, int peer)> done) = 0;
  // Drives messages on this thread until `reached`, which must not block. False: the deadline has passed. Without a
  // thread here messages progress too, more slowly.
  virtual bool wait(const std::function<bool()>& reached, TimePoint deadline) = 0;

  // Ends every wait here at once, with kCancelled, and fails the group for all its ranks.
  virtual void abort() noexcept = 0;
  // Under which names the process's counters have the collectives' bytes: MEMORY, the transport's, or both.
  virtual std::vector<std::string> carriers() const = 0;
  // "8 ranks of one host: flat shared memory, 2 threads each", for logs.
  virtual std::string describe() const = 0;
};

}  // namespace gloo_bypass::collectives
