// Private to datagram_transport: one session on its port, and its state in the poll loop. If several paths lead to the
// peer, each has a session: the channel's leads, the others are its rails (transport/core/session.h). The channel is
// connected once all are; a rail that fails fails the channel, with an error that names the path.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "transport/core/session.h"
#include "transport/datagram/packet_port.h"
#include "transport/progress/progress_engine.h"
#include "transport/security/key_agreement.h"
#include "transport/security/packet_protection.h"
#include "transport/sessions/channel_session.h"

namespace gloo_bypass {

class DatagramSession final : public ChannelSession {
 public:
  DatagramSession(PacketPort& port, DirtyList& dirtyList, const SessionConfig& config, std::uint64_t id,
                  std::uint64_t entropy, std::uint64_t number, const ChannelOptions& options, ChannelObserver* observer)
      : ChannelSession(dirtyList, id, number, options, observer), core(config, id, entropy), port_(port) {}
  // A rail of `lead`: path number `rail` to its peer. No channel points here.
  DatagramSession(DatagramSession& lead, DirtyList& dirtyList, const SessionConfig& config, std::size_t rail,
                  std::uint64_t entropy, std::uint64_t number);
  ~DatagramSession() override;

  std::uint64_t key() const { return id_; }

  Status connect(TimePoint now, const ChannelAddress& peer) override;
  Status postSend(const SendRequest& request) override { return core.postSend(request); }
  Status postReceive(const ReceiveRequest& request) override { return core.postReceive(request); }
  bool cancelSend(OperationToken token) override {
    port_.wakePeers();  // copies what was lent to it
    return core.cancelSend(token);
  }
  bool cancelReceive(OperationToken token) override { return core.cancelReceive(token); }
  std::optional<TimePoint> oldestUnmatched(MessageKey key) const override { return core.oldestUnmatched(key); }
  void close(TimePoint now, bool abort) override {
    if (lead_ != nullptr) return;  // ends with its lead
    observer_ = nullptr;
    port_.wakePeers();  // copies what was lent to it
    core.close(now, abort);
  }
  ChannelState state() const override;
  const Error& error() const override { return core.error(); }
  ChannelCounters counters() const override { return core.counters(); }
  std::optional<PathFigures> path() const override { return core.path(); }

  TimePoint deadline() const override { return nextTurn; }
  void handleTimeout(TimePoint now) override;
  bool finished() const override;

  // Before connect(). Not null: datagrams are sealed, unless the link is exempt.
  void secure(std::unique_ptr<security::KeyAgreement> agreement) { agreement_ = std::move(agreement); }
  std::vector<std::byte> offer() const { return agreement_ ? agreement_->offer() : std::vector<std::byte>(); }

  using Verdict = security::PacketProtection::Verdict;
  // A datagram that came over `from`. `plain`: wire::kMaxDatagramBytes of memory for it, opened. kOpened: the core has
  // it, or it is kept until connect().
  Verdict handleDatagram(TimePoint now, LinkId from, std::span<const std::byte> datagram, std::span<std::byte> plain);
  bool seals() const { return protection_ != nullptr; }
  // The sealed length; 0: the keys are used up, and the session has failed.
  std::size_t seal(const SessionDatagram& datagram, std::byte* out);
  // The port took nothing: neither the datagram of the last pollTransmit nor what seal() made of it was sent.
  void undoTransmit() {
    core.undoTransmit();
    if (seals()) protection_->undo();
  }
  // Of a sealed datagram, as the port sees it.
  std::size_t plainBytes(std::size_t bytes) const {
    return seals() ? bytes - std::min(bytes, security::PacketProtection::kOverheadBytes) : bytes;
  }
  // How many further paths connect() has found; for each, the transport opens a session.
  std::size_t takeRailsDue() { return std::exchange(railsDue_, 0); }
  void connectRail(TimePoint now, std::size_t rail);
  // Gives a turn soon to its rails that have something to do, or to its lead, which may have something to report.
  void wakeOthers();
  // The link has ended.
  void onLinkDown(TimePoint now, const Error& error);
  // The network says so, and proves nothing.
  void onPortUnreachable(TimePoint now);
  // When to call openLinkAgain(): the peer ended the link before this session had connected. kNever: the link stands.
  TimePoint opensLinkAgainAt() const { return stage_ == Stage::kLinkLost ? opensAgainAt_ : kNever; }
  // Fails if the port opens no link, or one of another kind.
  void openLinkAgain();
  // Notifies the observer. True if there was anything to report.
  bool tellEvents();
  bool canTransmit() const { return stage_ == Stage::kConnecting || met(); }
  std::size_t transmitBurst() const { return properties_.transmitBurst; }

  Session core;
  std::optional<LinkId> link;
  std::uint64_t remoteId = 0;   // its datagrams carry this id; valid with `link`
  TimePoint nextTurn = kNever;  // core.pollTimeout() when last pumped
  TimePoint transmitFrom{};     // the port was full: wait until then

 private:
  enum class Stage : std::uint8_t { kUnlinked, kConnecting, kLinkLost, kAwaitingRails, kConnected, kLinkDown };

  void enter(Stage next);
  bool met() const { return stage_ == Stage::kAwaitingRails || stage_ == Stage::kConnected; }
  void useLink(TimePoint now, LinkId opened, const std::vector<std::byte>& peerPort, std::uint64_t remote);
  bool protect();
  // Of the keys of all paths. Null: datagrams are in clear.
  const security::KeyAgreement* agreement() const {
    return lead_ == nullptr ? agreement_.get() : lead_->agreement_.get();
  }
  void takeEarly(TimePoint now);
  void takePlain(TimePoint now, std::span<const std::byte> datagram);
  void failSpent();
  bool awaitsRails() const;
  bool railsMet() const;
  const DatagramSession* connectingPath() const;
  void onStateChange(SessionState state);
  void tellConnected();
  void tellEnd(SessionState state);
  void failLead();
  void failLink(const Error& error);
  std::string whatIsBlocked() const;
  std::string whyNothingArrives() const;
  void warnOfSilence(TimePoint now) const;

  PacketPort& port_;
  LinkProperties properties_;        // of `link`, when it was opened
  std::vector<std::byte> peerPort_;  // of the peer; valid with `link`
  // Null: nothing is sealed. A rail uses its lead's.
  std::unique_ptr<security::KeyAgreement> agreement_;
  std::unique_ptr<security::PacketProtection> protection_;  // while the link is not exempt
  // The last small datagram before connect(): the peer's Hello, which cannot be opened yet.
  struct Early {
    LinkId link = 0;
    std::vector<std::byte> bytes;
  };
  std::optional<Early> early_;
  TimePoint connectingSince_{};  // valid with `link`
  Stage stage_ = Stage::kUnlinked;
  TimePoint opensAgainAt_{};             // in kLinkLost
  Duration nextPause_{0};                // before the link is opened again after the next loss
  DatagramSession* lead_ = nullptr;      // of a rail, while it lives
  const std::size_t rail_ = 0;           // number of its path
  std::vector<DatagramSession*> rails_;  // of a lead
  std::size_t railsDue_ = 0;
};

}  // namespace gloo_bypass
