// Seam 1: reliable, tagged, ordered messages to one peer. The Gloo adapter knows nothing below it. A back-end (DPDK or
// UDP sessions, RDMA queue pairs, pairs of two transports) implements it and passes the conformance suite.
//
// Exclusive access. All channels of a transport share one ProgressEngine. The caller of any method of Transport and
// MessageChannel holds the engine's exclusive access (ProgressEngine::exclusive, or inside an observer call), and so
// does the back-end when it calls a ChannelObserver. An adapter that touches its state only under exclusive access
// needs no other lock. Methods that are exceptions say so.
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
#include "transport/channel/operation_times.h"
#include "transport/channel/transport_report.h"

namespace gloo_bypass {

class ProgressEngine;

enum class ChannelState : std::uint8_t {
  kUnconnected,
  kConnecting,
  kConnected,
  kPeerClosed,  // the peer closed in good order; what it had sent before can still be received
  kFailed,      // see MessageChannel::error. After loss of the peer or the path, what had arrived can still be received
  kClosed,      // close() was called
};

// Matching: messages of one key match receives of that key in the order sent and posted, and receives complete in that
// order (Gloo's ring has two on one buffer and counts completions); sends complete in any order. Different keys are
// independent: an unreceived message never blocks another key's, until 65,536 of a peer's are unreceived.
class ChannelObserver {
 public:
  virtual ~ChannelObserver() = default;
  // The buffer may be reused; the peer need not have received the message yet. It will receive it even if this process
  // ends now: the message is in shared memory, or the kernel or the adapter has it. If a network may lose it, that
  // holds for confirmed sends only (SendRequest::confirmed).
  virtual void onSendComplete(OperationToken token) noexcept = 0;
  virtual void onReceiveComplete(OperationToken token, std::size_t length) noexcept = 0;
  // A message was announced and no receive is posted for it. The observer may call postReceive from here
  // (recv-from-any). Each message is announced at most once, in the peer's order of sending.
  virtual void onMessageAnnounced(MessageKey key, std::size_t length) noexcept = 0;
  // The channel reached kConnected, kPeerClosed or kFailed. After kFailed and kPeerClosed, no pending operation
  // completes and no buffer is touched; receives that had their whole message complete first. Other messages that have
  // fully arrived can still be received, unless a broken rule made the channel fail (Error::isLoss).
  virtual void onStateChange(ChannelState state) noexcept = 0;
};

class MessageChannel {
 public:
  // Closes if close() was not called. Needs exclusive access, as every method does.
  virtual ~MessageChannel() = default;

  // What the peer passes to connect(); opaque, at most kMaxAddressBytes, known from construction on.
  virtual std::vector<std::byte> localAddress() const = 0;
  static constexpr std::size_t kMaxAddressBytes = 512;

  // Starts to connect to the channel that has the localAddress() `remoteAddress` (hostile bytes); onStateChange reports
  // the outcome. Both sides call it. Incompatible settings end in kFailed with an error that names both values.
  virtual Status connect(std::span<const std::byte> remoteAddress) = 0;

  // Before kConnected: accepted and queued. In kClosed, kPeerClosed and kFailed: an error, except for a receive that
  // has its whole message here in the latter two. After an error the operation does not exist. May complete (call the
  // observer) before it returns.
  virtual Status postSend(const SendRequest& request) = 0;
  virtual Status postReceive(const ReceiveRequest& request) = 0;
  // After these the buffer is not touched any more and no completion comes. False: it is complete, or a copied send
  // continues. A cancelled send that has partly left continues as a copy. If it is too long to copy, or the peer reads
  // it from the user's memory (RDMA), the channel fails, as an aborted TCP stream would. A cancelled receive drops the
  // rest of a message that has partly arrived.
  virtual bool cancelSend(OperationToken token) = 0;
  virtual bool cancelReceive(OperationToken token) = 0;
  // When the key's oldest message without a posted receive arrived or was announced; nullopt: none can be received.
  // Comparable between the channels of a process, for a receive from any of several peers.
  virtual std::optional<TimePoint> oldestUnmatched(MessageKey key) const = 0;

  virtual ChannelState state() const = 0;
  virtual const Error& error() const = 0;  // only in kFailed
  // Names the peer for error messages: "10.0.0.2:4711", "memif peer pid 123 on host a".
  virtual std::string describePeer() const = 0;
  virtual ChannelCounters counters() const = 0;
  virtual std::optional<PathFigures> path() const { return std::nullopt; }  // if the back-end knows it

  // Good order: what was sent before is still delivered while the peer listens (in the background, for at most a linger
  // time); the peer sees kPeerClosed. `abort` drops what is unsent; the peer sees kFailed. No observer call comes after
  // it, and user buffers are not touched any more (unsent data is copied first).
  virtual void close(bool abort) = 0;
};

struct ChannelOptions {
  int localRank = -1, peerRank = -1;                   // for messages and logs
  Duration connectTimeout = std::chrono::seconds(30);  // a longer handshake ends in kFailed (kTimedOut)
  // How long the channel's user waits for anything: a peer that is only silent does not count as vanished earlier.
  Duration silenceTimeout{0};
};

// A back-end in this process. Made once a process (and configuration); all Devices share it.
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
  // The process ends while channels are open: closes them in good order and waits, for a bounded time, until the peers
  // have everything that was sent. Operations that still wait never complete. Exception to the rule: any thread, no
  // exclusive access.
  virtual void closeAll() {}
  virtual TransportReport report() const = 0;

  // Before the first channel: whoever posts operations shall measure how long they take.
  void measureLatencies() { latencies_ = std::make_unique<OperationTimes>(); }
  // Null: not measured. Exception to the rule: any thread, no exclusive access needed.
  OperationTimes* latencies() const { return latencies_.get(); }

 private:
  std::unique_ptr<OperationTimes> latencies_;
};

}  // namespace gloo_bypass
