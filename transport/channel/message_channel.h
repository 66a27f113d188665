// Seam 1: reliable, tagged, ordered messages to one peer. The Gloo adapter knows nothing below it; a
// back-end (DPDK sessions, RDMA queue pairs) implements it and passes the conformance suite.
//
// Exclusive access. All of a back-end's channels share one ProgressEngine. Every method of Transport and
// MessageChannel, and every call of a ChannelObserver, happens with the engine's exclusive access
// held (ProgressEngine::exclusive, or inside an observer call). So an adapter whose state is touched
// under exclusive access only needs no further lock. The two exceptions are named below.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/status.h"
#include "transport/base/time.h"
#include "transport/channel/channel_counters.h"
#include "transport/channel/message.h"
#include "transport/channel/transport_report.h"

namespace gloo_bypass {

class ProgressEngine;

enum class ChannelState : std::uint8_t {
  kUnconnected,
  kConnecting,
  kConnected,
  kPeerClosed,  // the peer closed in good order; what it had sent before can still be received
  kFailed,      // see MessageChannel::error; the same holds if the peer or the way to it was lost
  kClosed,      // close() was called
};

// Matching: messages of one key match receives of that key in the order sent and posted, and receives complete in that
// order (Gloo's ring has two on one buffer and counts completions); sends complete in any order. Different
// keys are independent: a message nobody receives never blocks another key's.
class ChannelObserver {
 public:
  virtual ~ChannelObserver() = default;
  // The buffer may be reused; the peer need not have received the message yet. But it will get it even if this process
  // ends now: the message is in memory that both share, or the kernel or the adapter has it. Where a network may lose
  // it, that holds for confirmed sends only (SendRequest::confirmed).
  virtual void onSendComplete(OperationToken token) noexcept = 0;
  virtual void onReceiveComplete(OperationToken token, std::size_t length) noexcept = 0;
  // A message has been announced for which no receive was posted. The observer may call postReceive
  // from here (recv-from-any). Each message is announced once at most, in the peer's order of sending.
  virtual void onMessageAnnounced(MessageKey key, std::size_t length) noexcept = 0;
  // kConnected, kPeerClosed or kFailed was reached. After kFailed and kPeerClosed, every pending operation has been
  // forgotten (no completion will come, no buffer is touched); receives whose message had fully arrived are completed
  // first. What else has fully arrived can still be received, unless the channel failed because a rule was broken
  // (Error::isLoss).
  virtual void onStateChange(ChannelState state) noexcept = 0;
};

class MessageChannel {
 public:
  // Closes if close() was not called. Needs exclusive access as every method does.
  virtual ~MessageChannel() = default;

  // What the peer's connect needs; opaque, at most kMaxAddressBytes, known from construction on.
  virtual std::vector<std::byte> localAddress() const = 0;
  static constexpr std::size_t kMaxAddressBytes = 512;

  // Begins to connect to the channel whose localAddress() is `remoteAddress` (hostile bytes); the end is told by
  // onStateChange. Both sides call it. Settings that cannot talk end in kFailed with both values named.
  virtual Status connect(std::span<const std::byte> remoteAddress) = 0;

  // Before kConnected: accepted and queued. In kClosed: an error; in kPeerClosed and kFailed too, but for a receive
  // whose message has fully arrived. After an error there is no such operation. May complete (call the observer) before
  // it returns.
  virtual Status postSend(const SendRequest& request) = 0;
  virtual Status postReceive(const ReceiveRequest& request) = 0;
  // After these the buffer is not touched any more and no completion comes. False: it is complete, or a send whose copy
  // goes on. A cancelled send whose bytes have partly gone out goes on as a copy. Where it is too long to be copied, or
  // the peer reads it from the user's memory (RDMA), the channel fails, as an aborted TCP stream would. A cancelled
  // receive whose message has partly arrived lets the rest arrive into nowhere.
  virtual bool cancelSend(OperationToken token) = 0;
  virtual bool cancelReceive(OperationToken token) = 0;
  // When the oldest message of the key for which no receive is posted arrived or was announced; nothing: there is none
  // that can be received. Comparable between the channels of a process, for a receive from any of several peers.
  virtual std::optional<TimePoint> oldestUnmatched(MessageKey key) const = 0;

  virtual ChannelState state() const = 0;
  virtual const Error& error() const = 0;  // only in kFailed
  // Names the peer for error messages: "10.0.0.2:4711", "memif peer pid 123 on host a".
  virtual std::string describePeer() const = 0;
  virtual ChannelCounters counters() const = 0;

  // Good order: what was sent before is delivered first if the peer still listens (in the background, bounded by a
  // linger time); the peer sees kPeerClosed. `abort` drops what is unsent; the peer sees kFailed.
  // No observer call comes after it; user buffers are not touched any more (unsent data is copied first).
  virtual void close(bool abort) = 0;
};

struct ChannelOptions {
  int localRank = -1, peerRank = -1;                   // for messages and logs
  Duration connectTimeout = std::chrono::seconds(30);  // handshake ends in kFailed (kTimedOut) after it
  // How long its user waits for anything: a peer that is silent, and of which nothing worse is known, is not given up
  // before.
  Duration silenceTimeout{0};
};

// A back-end in this process. Made once a process (and configuration), shared by all Devices.
class Transport {
 public:
  virtual ~Transport() = default;
  // Exception to the rule: any thread, no exclusive access needed.
  virtual ProgressEngine& progress() = 0;
  // Exception to the rule: any thread, no exclusive access needed. "dpdk memif in /tmp/x", for Device::str().
  virtual std::string describe() const = 0;
  // `observer` must outlive the channel or its close().
  virtual Result<std::unique_ptr<MessageChannel>> openChannel(const ChannelOptions& options,
                                                              ChannelObserver* observer) = 0;
  // The process ends while channels are open: closes them in good order and waits a bounded time until the peers have
  // what was sent. Operations that still wait never complete. Exception to the rule: any thread, no exclusive access.
  virtual void closeAll() {}
  virtual TransportReport report() const = 0;
};

}  // namespace gloo_bypass
