// Private to memory_transport: one channel, and the parcels that two of them exchange.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/channel/message_channel.h"
#include "transport/matching/message_matcher.h"

namespace gloo_bypass::test {

//   eager:       kEager ->
//   rendezvous:  kOffer ->   <- kGrant   kPayload ->    (kPayload without a grant when the sender closes)
enum class ParcelType : std::uint8_t {
  kHello,
  kEager,
  kOffer,
  kGrant,
  kPayload,
  kWithdraw,
  kClose,
  kReset,
  kGone,
  kCorrupt
};

struct Parcel {
  ParcelType type = ParcelType::kHello;
  std::uint64_t toChannel = 0;
  std::uint64_t fromTransport = 0;  // also kGone: which transport is gone
  std::uint64_t offer = 0;
  MessageKey key;
  std::size_t length = 0;
  std::uint64_t remoteOffset = 0;
  std::vector<std::byte> payload;  // kHello: the dialect
  TimePoint due{};
};

// The service that a channel needs of its transport.
class ParcelSender {
 public:
  virtual ~ParcelSender() = default;
  virtual void deliver(std::uint64_t transport, Parcel parcel) = 0;
  virtual void forget(std::uint64_t channel) = 0;
  virtual std::size_t rendezvousBytes() const = 0;
  virtual const std::string& dialect() const = 0;
  virtual Duration delay() const = 0;  // each way
};

class MemoryChannel final : public MessageChannel {
 public:
  MemoryChannel(ParcelSender& sender, std::uint64_t transport, std::uint64_t id, ChannelObserver* observer)
      : sender_(sender), transport_(transport), id_(id), observer_(observer) {}
  ~MemoryChannel() override;

  std::vector<std::byte> localAddress() const override;
  Status connect(std::span<const std::byte> remoteAddress) override;
  Status postSend(const SendRequest& request) override;
  Status postReceive(const ReceiveRequest& request) override;
  bool cancelSend(OperationToken token) override;
  bool cancelReceive(OperationToken token) override;
  std::optional<TimePoint> oldestUnmatched(MessageKey key) const override { return matcher_.unmatchedSince(key); }
  ChannelState state() const override { return state_; }
  const Error& error() const override { return error_; }
  std::string describePeer() const override;
  ChannelCounters counters() const override { return counters_; }
  std::optional<PathFigures> path() const override {
    return PathFigures{.minRtt = std::max<Duration>(2 * sender_.delay(), std::chrono::microseconds(1))};
  }
  void close(bool abort) override;

  void receive(Parcel& parcel);
  std::uint64_t remoteTransport() const { return remoteTransport_; }
  void fail(ErrorCode code, std::string message, bool tellPeer);

 private:
  struct Incoming {
    std::uint64_t offer = 0;  // 0: the payload is here, or has been
    std::vector<std::byte> payload;
  };
  using Matcher = MessageMatcher<Incoming>;

  void send(Parcel parcel);
  void transmit(const SendRequest& request);
  void greet();
  void peerClosed();
  void arrived(const Parcel& parcel, Incoming incoming);
  // The message has matched its receive.
  Status begin(SlotIndex slot);
  Status land(SlotIndex slot, const std::vector<std::byte>& payload);
  void payloadArrived(Parcel& parcel);
  void withdrawn(std::uint64_t offer);
  void end(const Matcher::Message& message);
  void forgetUnderWay();  // all but arrived messages
  void forgetEverything();
  Status closedStatus() const;

  ParcelSender& sender_;
  const std::uint64_t transport_;
  const std::uint64_t id_;
  ChannelObserver* observer_;
  ChannelState state_ = ChannelState::kUnconnected;
  Error error_;
  ChannelCounters counters_;
  std::uint64_t remoteTransport_ = 0;
  std::uint64_t remoteChannel_ = 0;
  std::optional<std::string> heardDialect_;  // of the peer's hello
  std::deque<SendRequest> early_;            // posted before the connection existed
  std::uint64_t nextOffer_ = 1;
  std::map<std::uint64_t, SendRequest> offered_;  // of ours
  std::map<std::uint64_t, SlotIndex> offers_;     // of the peer's, granted or not
  Matcher matcher_{0};                            // no peer is hostile here
};

}  // namespace gloo_bypass::test
