// The state of one Gloo context: its connections, and the receives from any rank. Outlives the context until the
// last bound buffer is gone.
//
//   Context, Pair, Buffer, UnboundBuffer  (Gloo's handles)  ->  Group  ->  Connection  ->  MessageChannel
//
// Thread: unless a method says otherwise it needs the progress engine's exclusive access.
//
// Where it differs from Gloo's TCP transport, on purpose:
// - A small send completes once the channel has taken it, whether or not the peer has posted its receive. What a
//   peer sent before it closed in good order can still be received.
// - A rank that waits in a collective for a peer that has ended fails at once, and tells all others: whoever waits for
//   it in a collective fails with the same reason, and tells its own peers in turn. Sends and receives between two
//   ranks are not concerned.
// - A receive from any fails once all its sources are gone, instead of timing out.
// - A message that is too long for its receive fails the pair; over TCP it ends the process.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "transport/channel/message_channel.h"
#include "transport/gloo/address_exchange.h"
#include "transport/gloo/connection.h"
#include "transport/gloo/exposed_memory.h"
#include "transport/gloo/operation.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::adapter {

class Group {
 public:
  Group(std::shared_ptr<Transport> transport, int rank, int size);
  // Any thread, without exclusive access.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // Any thread, no exclusive access needed.
  int rank() const { return rank_; }
  Transport& transport() const { return *transport_; }
  ProgressEngine& progress() const { return progress_; }
  OperationTimes* latencies() const { return latencies_; }  // null: they are not measured
  // Any thread; `f` lives on the caller's stack, so nothing is allocated.
  template <typename F>
  void exclusive(F&& f) const {
    progress_.exclusive(std::ref(f));
  }
  // The pair to `rank`, null if there is none. The pairs are logically constant once made, as in Gloo's own
  // contexts: any thread, no exclusive access needed.
  Connection* connection(int rank) const;

  // Takes the place of an earlier connection to that rank, which lives on.
  Connection& addConnection(int peerRank, std::chrono::milliseconds timeout, ConnectMode mode);
  OperationPool& operations() { return operations_; }
  // Connections made from now on may be on demand. Once, before the first of them; no exclusive access needed.
  void connectThrough(std::shared_ptr<gloo_version::ContextStore> store);
  // Only where connections are on demand.
  AddressExchange& addressExchange() const { return *addressExchange_; }

  // Posts a receive for the longest waiting message of `sources`, or keeps the receive until a message comes. Null: it
  // is on its way. A use of every source's connection.
  Failure receiveFromAny(BufferState& buffer, std::uint64_t slot, std::byte* data, std::size_t length,
                         std::vector<int> sources);
  // `connection` may have an unbound message for which nothing is posted: gives it a waiting receive, if there is one.
  void announced(Connection& connection, std::uint64_t slot);

  // Exposes a buffer to the peers' puts and gets, until it is concealed. A use of every connection: any peer may come.
  std::uint64_t expose(std::byte* data, std::size_t size);
  // No peer touches the region any more, when it returns. Without exclusive access: what is under way gets up to
  // `linger` to end.
  void conceal(std::uint64_t region, std::chrono::milliseconds linger);
  ExposedMemory& exposedMemory() { return exposedMemory_; }

  // The operation's buffer is not touched any more and nothing completes.
  void cancel(Operation* operation);

  // `connection` has failed: receives from any that only it could serve fail with it.
  void connectionFailed(const Connection& connection);
  // Fails and aborts every connection: an operation of this context timed out.
  void failAll(const Failure& failure);

  // A pair's setSync has asked that waits for unbound buffers never sleep. Any thread, no exclusive access needed.
  bool busyPoll() const { return busyPoll_.load(std::memory_order_relaxed); }
  void setBusyPoll() { busyPoll_.store(true, std::memory_order_relaxed); }

  // This rank cannot complete a collective: tells every rank that it is or will be connected to. Once; the first reason
  // stays.
  void collectiveFailed(const Failure& why);
  // What to tell the others; null: none has failed.
  const Failure& failedCollective() const { return failedCollective_; }
  // A peer has said that its collective failed, so this rank's fails too. The others hear the first cause.
  void heardOfFailedCollective(const std::string& cause);

 private:
  // The connection of `sources` with the oldest unmatched message of the slot; null: none has one.
  Connection* longestUnmatched(const std::vector<int>& sources, std::uint64_t slot) const;
  // Null while some source may still send.
  Failure failureOfSources(const std::vector<int>& sources) const;

  const std::shared_ptr<Transport> transport_;
  ProgressEngine& progress_;
  OperationTimes* const latencies_;
  const int rank_;
  OperationPool operations_;
  ExposedMemory exposedMemory_;
  std::deque<Connection> connections_;
  std::vector<Connection*> byRank_;
  ListHook receivesFromAny_;  // in the order posted
  Failure failedCollective_, heardCause_;
  std::atomic<bool> busyPoll_{false};
  std::unique_ptr<AddressExchange> addressExchange_;
};

}  // namespace gloo_bypass::adapter
