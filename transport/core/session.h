// One reliable, message-oriented conversation with one peer over unreliable datagrams. Pure: no I/O, clock, thread,
// lock, environment or random numbers. Time and entropy come in as arguments; datagrams and events leave by polling.
//
//   handleDatagram(now, bytes)  when one arrived for this session        \   after any of these:
//   handleTimeout(now)          when now >= pollTimeout()                 >  pollTransmit until nothing,
//   postSend/postReceive/...    the user's operations                    /   pollEvent until nothing, pollTimeout
//
// Rails: further sessions to the same peer, each over a path of its own, that carry chunks of the first one's long
// messages. A rail has a handshake, congestion control, retransmissions and keep-alive of its own, and no messages; it
// takes chunks as its path has room, so each path carries its share. What is posted, announced, granted and closed is
// the first session's, and a chunk that arrives over a rail is the first one's too. Both ends pair their rails alike.
//
// Owner: whoever made it; one thread at a time. Sizes in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/config.h"
#include "transport/base/duration_histogram.h"
#include "transport/base/status.h"
#include "transport/base/time.h"
#include "transport/channel/channel_counters.h"
#include "transport/channel/message.h"
#include "transport/wire/packet.h"

namespace gloo_bypass {

// A datagram to send. `header` is valid until the next non-const call, and `payload` too. A lasting one is in the
// buffer of a send that is not complete, and so valid until the user hears of its end, cancels it, or closes the
// session.
struct SessionDatagram {
  std::span<const std::byte> header;
  std::span<const std::byte> payload;
  bool lasting = false;
};

enum class SessionState : std::uint8_t { kIdle, kConnecting, kEstablished, kPeerClosed, kClosing, kClosed, kFailed };

struct SessionEvent {
  enum class Type : std::uint8_t { kSendComplete, kReceiveComplete, kMessageAnnounced, kStateChange };
  Type type;
  OperationToken token = 0;                  // kSendComplete, kReceiveComplete
  MessageKey key;                            // kMessageAnnounced
  std::size_t length = 0;                    // kReceiveComplete, kMessageAnnounced
  SessionState state = SessionState::kIdle;  // kStateChange
};

class Session {
 public:
  // Ids are 64 random bits each, exchanged out of band (the rendezvous store). A datagram carries its RECEIVER's.
  // `entropy`: random bits for jitter, initial sequence numbers and hashes. The peer does not know them.
  Session(const SessionConfig& config, std::uint64_t localId, std::uint64_t entropy);
  // A rail of `lead`, before that connects. Of the user's calls it has connect() and fail() only. After any call of a
  // rail the lead may have something to send or to tell; the other way round see hasParts(). It ends with the lead:
  // nothing goes out then, and it is drained. A rail that fails has lost parts of messages: the lead is to fail as
  // well.
  Session(const SessionConfig& config, std::uint64_t localId, std::uint64_t entropy, const Session& lead);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The id of the session a datagram is for, without further checks; nullopt: not ours (magic, version, too short).
  // For an endpoint that demultiplexes.
  static std::optional<std::uint64_t> receiverId(std::span<const std::byte> datagram);

  // What the way to the peer is, where the configuration could not know: loses nothing; checks what it carries. Before
  // connect().
  void markLossless();
  void markVerified();
  // Handshake begins (both sides call it). `maxDatagramBytes`: what the link to this peer carries now. Where it may
  // lose datagrams, those above `firstDatagramBytes` are used once a probe has passed.
  void connect(TimePoint now, std::uint64_t remoteId, std::size_t maxDatagramBytes,
               std::size_t firstDatagramBytes = wire::kEthernetDatagramBytes);
  // Good order: sent messages are delivered first; `abort`: the peer fails at once (one RESET datagram is tried).
  // Unsent payload of user buffers is copied into the session (bounded) before close returns.
  void close(TimePoint now, bool abort);
  // From outside: a datagram of `bytes` may be too large for the path.
  void suspectDatagramSize(TimePoint now, std::size_t bytes);
  // From outside, in kFailed: more about the reason.
  void explainFailure(const std::string& reason);
  // From outside: the link broke. Pending operations are forgotten, the state becomes kFailed. `tellPeer`: by the link,
  // if it is another that broke.
  void fail(const Error& error, bool tellPeer = false);

  Status postSend(TimePoint now, const SendRequest& request);
  Status postReceive(TimePoint now, const ReceiveRequest& request);
  bool cancelSend(TimePoint now, OperationToken token);
  bool cancelReceive(TimePoint now, OperationToken token);
  // As MessageChannel::oldestUnmatched.
  std::optional<TimePoint> oldestUnmatched(MessageKey key) const;

  void handleDatagram(TimePoint now, std::span<const std::byte> datagram);
  void handleTimeout(TimePoint now);
  // Next datagram, or false: nothing may go out now (nothing to send, window or pacing: see pollTimeout).
  bool pollTransmit(TimePoint now, SessionDatagram* out);
  // The port took nothing: the datagram of the last pollTransmit was NOT sent. The session sends it later.
  void undoTransmit(TimePoint now);
  bool pollEvent(SessionEvent* out);
  bool toTell() const;  // pollEvent() would give something
  // Whether rails could send something now.
  bool hasParts() const;
  // When handleTimeout or pollTransmit is due although nothing arrives (RTO, probe, delayed ack, pacing, keep-alive).
  TimePoint pollTimeout() const;

  SessionState state() const;
  bool peerHeard() const;      // its Hello has arrived
  const Error& error() const;  // only in kFailed
  // Nothing left to send or to be acknowledged, and the close handshake is over: the owner may destroy it.
  bool drained() const;
  ChannelCounters counters() const;
  PathFigures path() const;
  // Round-trip times measured from now on are added to `histogram` too, which must outlive the session; null: no
  // longer.
  void recordRttIn(DurationHistogram* histogram);
  // Bytes held now: send buffer, staged receives, bookkeeping. For tests of the memory bound.
  std::size_t memoryBytes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gloo_bypass
