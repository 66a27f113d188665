// Private to datagram_transport: one session on its port, and where it stands in the poll loop. Where several ways lead
// to the peer there is a session for each: the channel's, which leads, and its rails (transport/core/session.h). The
// channel is connected once all are; a rail that fails fails the channel, with an error that names the way.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "transport/core/session.h"
#include "transport/datagram/packet_port.h"
#include "transport/progress/progress_engine.h"
#include "transport/sessions/channel_session.h"

namespace gloo_bypass {

class DatagramSession final : public ChannelSession {
 public:
  DatagramSession(PacketPort& port, DirtyList& dirtyList, const SessionConfig& config, std::uint64_t id,
                  std::uint64_t entropy, std::uint64_t number, const ChannelOptions& options, ChannelObserver* observer)
      : ChannelSession(dirtyList, id, number, options, observer), core(config, id, entropy), port_(port) {}
  // A rail of `lead`, the way `rail` to its peer. No channel points here.
  DatagramSession(DatagramSession& lead, DirtyList& dirtyList, const SessionConfig& config, std::size_t rail,
                  std::uint64_t entropy, std::uint64_t number);
  ~DatagramSession() override;

  std::uint64_t key() const { return id_; }

  Status connect(TimePoint now, const ChannelAddress& peer) override;
  Status postSend(const SendRequest& request) override { return core.postSend(monotonicNow(), request); }
  Status postReceive(const ReceiveRequest& request) override { return core.postReceive(monotonicNow(), request); }
  bool cancelSend(OperationToken token) override {
    port_.wakePeers();  // has copied what it was lent
    return core.cancelSend(monotonicNow(), token);
  }
  bool cancelReceive(OperationToken token) override { return core.cancelReceive(monotonicNow(), token); }
  std::optional<TimePoint> oldestUnmatched(MessageKey key) const override { return core.oldestUnmatched(key); }
  void close(TimePoint now, bool abort) override {
    if (lead_ != nullptr) return;  // ends with it
    observer_ = nullptr;
    port_.wakePeers();  // has copied what it was lent
    core.close(now, abort);
  }
  ChannelState state() const override;
  const Error& error() const override { return core.error(); }
  ChannelCounters counters() const override { return core.counters(); }
  std::optional<PathFigures> path() const override { return core.path(); }

  TimePoint deadline() const override { return nextTurn; }
  void handleTimeout(TimePoint now) override;
  bool finished() const override;

  void handleDatagram(TimePoint now, std::span<const std::byte> datagram);
  // connect() has found further ways: how many, and each one's session begins to connect.
  std::size_t takeRailsDue() { return std::exchange(railsDue_, 0); }
  void connectRail(TimePoint now, std::size_t rail);
  // Those of its rails that have something to do now, or its lead, which may have something to tell, have a turn soon.
  void wakeOthers();
  // The link has ended.
  void onLinkDown(TimePoint now, const Error& error);
  // Its peer has ended it, before this session has met its own: openLinkAgain() is due at that time. kNever: it has
  // not.
  TimePoint opensLinkAgainAt() const { return linkLost_ ? opensAgainAt_ : kNever; }
  // Failed if the port opens none, or one of another kind.
  void openLinkAgain();
  // Tells the observer. True if there was anything to tell.
  bool tellEvents();
  bool canTransmit() const { return link && !linkDown_ && !linkLost_; }
  std::size_t transmitBurst() const { return properties_.transmitBurst; }

  Session core;
  std::optional<LinkId> link;
  std::uint64_t remoteId = 0;   // what its datagrams carry; valid with `link`
  TimePoint nextTurn = kNever;  // core.pollTimeout() when last pumped
  TimePoint transmitFrom{};     // the port was full: not before this

 private:
  void useLink(TimePoint now, LinkId opened, const std::vector<std::byte>& peerPort, std::uint64_t remote);
  bool railsMet() const;
  const DatagramSession* unmetWay() const;
  void tellStateChange(SessionState state);
  void onRailStateChange();
  void failLink(const Error& error);
  std::string whatIsBlocked() const;
  void warnOfSilence(TimePoint now) const;

  PacketPort& port_;
  LinkProperties properties_;        // of `link`, when it was opened; each time
  std::vector<std::byte> peerPort_;  // its address; valid with `link`
  TimePoint connectingSince_{};      // valid with `link`
  bool met_ = false;                 // has been established
  bool linkLost_ = false;
  TimePoint opensAgainAt_{};  // with linkLost_
  Duration nextPause_{0};     // before the link is opened again after the next loss
  bool linkDown_ = false;
  DatagramSession* lead_ = nullptr;      // of a rail, while it lives
  std::vector<DatagramSession*> rails_;  // of a lead
  std::size_t railsDue_ = 0;
  bool connectedHeld_ = false;  // established, but not all rails are
};

}  // namespace gloo_bypass
