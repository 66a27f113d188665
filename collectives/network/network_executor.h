// Collective operations between hosts: schedules over message channels, so over UDP, DPDK and RDMA alike.
//
//   run()  ->  OperationRun (schedule, slices, headers)  ->  Peer  ->  MessageChannel
//   send(), receive()  ->  Mailbox  ----------------------^
//
// Payloads go straight from and into the caller's buffers, except short ones, and what is added goes from the packet
// into its place. Where a step adds several messages, or something else still needs the place, the messages wait in
// memory of the executor: some slices at a time, and of each what choiceOf() allows. A vector of at most 16 KiB takes
// one network round among few ranks: its first message says what is called and carries the data.
//
// A rank that has waited for 200 ms tells all others what it has called. So ranks that call different operations find
// out even where neither sends to the other.
//
// An error of one rank is that of all: it tells the others why, and they pass it on. Bytes from peers are hostile: they
// can spoil values, and end the group, not more.
//
// Thread: run() and wait() one at a time each; announce(), send(), receive() and abort() from any. Whoever waits drives
// progress.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "collectives/executor.h"
#include "collectives/group.h"
#include "collectives/rendezvous.h"
#include "collectives/schedule/choices.h"
#include "transport/channel/message_channel.h"

namespace gloo_bypass::collectives {

struct NetworkOptions {
  int rank = 0, size = 1;
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};  // of connecting
  std::chrono::milliseconds silence{std::chrono::minutes(30)};  // how long a peer may be silent afterwards
  std::vector<int> hostOf;  // the host of each rank, for two-level algorithms; empty: all on one
  ChoiceTable choices;      // the same in every rank
};

class NetworkExecutor final : public Executor {
 public:
  // Blocks until all ranks are connected. Errors: as connectMesh (mesh.h). The executor keeps the transport alive.
  static Result<std::unique_ptr<NetworkExecutor>> connect(const NetworkOptions& options,
                                                          std::shared_ptr<Transport> transport, Rendezvous& rendezvous);
  // Leaves in good order: peers still get what was sent. Messages that have not ended end with kCancelled.
  ~NetworkExecutor() override;

  Status run(const Call& call, TimePoint deadline) override;
  void announce(const Call& call) noexcept override;
  void abort() noexcept override;

  // For an executor that composes operations of this one and others (hierarchical/).
  //
  // As run(), among some of the ranks: the call's root and blocks are places in `ranks`, which this rank is one of.
  // Other ranks take no part. kAverage divides by the number of all ranks.
  struct Subset {
    std::span<const int> ranks;  // the same in each of them
    std::uint64_t number = 0;    // of this operation: the same in each of them, above that of every earlier one
  };
  Status runAmong(const Call& call, const Subset& subset, TimePoint deadline);
  // Fails for good, because of an error that arose elsewhere; tells the others, and that operations from `number` on
  // are lost.
  void end(const Error& error, std::uint64_t number);
  // The error if this operation is lost, by this rank or another; takes no lock. Any thread.
  Status failure(std::uint64_t number) const;
  // Why the executor has failed, after looking for up to `patience` whether another rank says so.
  Status failureWithin(Duration patience);

  // As Group's. `done` runs with the engine's exclusive access, on the thread that drives or before these return: it
  // must neither block nor call the executor. A message's fault, or the end of its peer, is no error of the executor.
  using Done = std::function<void(Status, int peer)>;
  void send(const Message& message, Done done);
  void receive(const Message& message, Done done);
  // Drives until `reached`, which runs with exclusive access as `done` does. False: the deadline has passed.
  bool wait(const std::function<bool()>& reached, TimePoint deadline);

  // The shortest round trip that was measured to one of `ranks`, which are others; Duration::max() if none was.
  Duration shortestPath(std::span<const int> ranks) const;
  // "8 ranks over udp on eth0"
  std::string describe() const;

 private:
  class Impl;
  explicit NetworkExecutor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gloo_bypass::collectives
