// Messages between two ranks of a group, beside its collectives. Ranks that have channels use them. Ranks that share
// memory connect channels when one of them first sends or receives a message: most programs never do, and then no
// transport starts.
//
// Thread: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "collectives/group.h"
#include "collectives/network/network_executor.h"
#include "transport/base/mutex.h"
#include "transport/base/status.h"

namespace gloo_bypass::collectives {

class Messenger {
 public:
  using Done = std::function<void(Status, int peer)>;  // as Group's

  virtual ~Messenger() = default;
  virtual void send(const Message& message, Done done) = 0;
  virtual void receive(const Message& message, Done done) = 0;
  // As Group::wait.
  virtual bool wait(const std::function<bool()>& reached, TimePoint deadline) = 0;
  // Ends what waits, and everything later.
  virtual void abort() noexcept = 0;
  // An operation of this rank has failed, and with it the group.
  virtual void onGroupFailed(const Error& error) = 0;
};

// Over channels that are there. `network` must outlive it.
class NetworkMessenger final : public Messenger {
 public:
  explicit NetworkMessenger(NetworkExecutor& network) : network_(network) {}
  void send(const Message& message, Done done) override { network_.send(message, std::move(done)); }
  void receive(const Message& message, Done done) override { network_.receive(message, std::move(done)); }
  bool wait(const std::function<bool()>& reached, TimePoint deadline) override {
    return network_.wait(reached, deadline);
  }
  void abort() noexcept override { network_.abort(); }
  void onGroupFailed(const Error&) override {}  // the network's own operation has failed, and ends messages

 private:
  NetworkExecutor& network_;
};

// Of a group of one rank, which has no peers.
class NoMessenger final : public Messenger {
 public:
  void send(const Message& message, Done done) override { refuse(message, done); }
  void receive(const Message& message, Done done) override { refuse(message, done); }
  bool wait(const std::function<bool()>& reached, TimePoint) override { return reached(); }
  void abort() noexcept override {}
  void onGroupFailed(const Error&) override {}

 private:
  static void refuse(const Message& message, const Done& done) {
    done({ErrorScope::kOperation, ErrorCode::kInvalidArgument, "a group of one rank has no peers"}, message.peer);
  }
};

//   kIdle ---a message of this rank, or of another, seen in the shared word---> kConnecting ---> kConnected
//                                                                                    |               | abort
//                                                                                    +-> kFailed <---+
//
// Every rank has one thread here, which sleeps on the shared word until then.
class LateMessenger final : public Messenger {
 public:
  // Blocks until all ranks have called theirs, or `stopped` gives an error, which it looks at now and then.
  using Connect = std::function<Result<std::unique_ptr<NetworkExecutor>>(const std::function<Status()>& stopped)>;

  // `wanted` lies in memory that the group's ranks share; not 0: some rank has a message. Throws std::system_error if
  // no thread can start.
  LateMessenger(std::atomic<std::uint32_t>& wanted, Connect connect);
  // Messages that still wait end with kCancelled.
  ~LateMessenger() override;

  void send(const Message& message, Done done) override { post({true, message, std::move(done)}); }
  void receive(const Message& message, Done done) override { post({false, message, std::move(done)}); }
  bool wait(const std::function<bool()>& reached, TimePoint deadline) override;
  void abort() noexcept override;
  void onGroupFailed(const Error& error) override;

 private:
  struct Letter {
    bool sends = false;
    Message message;
    Done done;
  };
  enum class State : std::uint8_t { kIdle, kConnecting, kConnected, kFailed };

  void post(Letter letter);
  void pass(Letter letter);
  void attend();
  bool hasLetters();
  bool flush();
  void fail(const Error& error);
  bool isConnected();

  std::atomic<std::uint32_t>& wanted_;
  const Connect connect_;
  Mutex mutex_;
  Condition changed_;  // the state
  State state_ GLOO_BYPASS_GUARDED_BY(mutex_) = State::kIdle;
  Error error_ GLOO_BYPASS_GUARDED_BY(mutex_);                  // in kFailed
  bool allTold_ GLOO_BYPASS_GUARDED_BY(mutex_) = false;         // in kFailed: what waited has its error
  std::vector<Letter> waiting_ GLOO_BYPASS_GUARDED_BY(mutex_);  // until it is connected
  std::unique_ptr<NetworkExecutor> network_;                    // constant from kConnected on
  std::atomic<bool> ending_{false}, attended_{false};           // attended_: the thread has done its work
  std::thread thread_;
};

}  // namespace gloo_bypass::collectives
