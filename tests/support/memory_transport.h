// Transports of one process that pass messages in memory: the simplest correct back-end, to develop and test the Gloo
// adapter with, and faults on demand. One transport stands for one process; a fabric joins them.
//
// Thread: every method of MemoryFabric may be called from any thread, without exclusive access.
#pragma once

#include <memory>
#include <string>

#include "transport/base/time.h"
#include "transport/channel/message_channel.h"

namespace gloo_bypass::test {

struct MemoryTransportOptions {
  std::size_t rendezvousBytes = 32 * 1024;  // from here on a message waits for its receive
  Duration delay{0};                        // each way
  Duration spin = std::chrono::microseconds(20);
  std::string dialect = "1";  // two transports that differ in it refuse to connect
};

class MemoryTransport;

class MemoryFabric : public std::enable_shared_from_this<MemoryFabric> {
 public:
  static std::shared_ptr<MemoryFabric> make();
  ~MemoryFabric();

  std::shared_ptr<Transport> makeTransport(const MemoryTransportOptions& options = {});

  // As SIGSTOP: the transport receives nothing until it is resumed.
  void setPaused(const Transport& transport, bool paused);
  // As SIGKILL: parcels to it disappear; every channel of a peer fails with kPeerVanished.
  void vanish(const Transport& transport);
  // Every channel between the two fails with kPeerViolatedProtocol, at `transport`'s side first.
  void corrupt(const Transport& transport, const Transport& peer);

 private:
  friend class MemoryTransport;
  struct State;
  MemoryFabric();
  std::unique_ptr<State> state_;
};

}  // namespace gloo_bypass::test
