#include "transport/udp/udp_port.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <unordered_map>

#include "transport/base/wake_event.h"
#include "transport/datagram/network_interface.h"
#include "transport/progress/progress_engine.h"
#include "transport/udp/local_address.h"
#include "transport/wire/packet.h"

namespace gloo_bypass::udp {
namespace {

constexpr std::size_t kEthernetHeaderBytes = 14;
constexpr std::size_t kLargestDatagram = 65'507;
// Error messages taken in one receive(); more wait for the next.
constexpr int kErrorsAtOnce = 64;
// An interface does not tell when its queue has room again.
constexpr auto kRetryFullInterface = std::chrono::milliseconds(1);
// Its queue moves on within this. What it still refuses then, it drops: a veth pair what the other end's MTU does not
// carry, an interface without carrier everything.
constexpr auto kFullInterface = std::chrono::milliseconds(10);

class UdpPort final : public PacketPort {
 public:
  UdpPort(std::unique_ptr<UdpSocket> socket, std::size_t mtu)
      : socket_(std::move(socket)),
        interface_(NetworkInterface::withAddress(socket_->local().any)),
        mtu_(mtu),
        overheadBytes_(socket_->local().isV6() ? 48 : 28) {}
  bool canBeWoken() const { return static_cast<bool>(wakeEvent_); }

  std::vector<std::byte> localAddress() const override { return encode(socket_->local()); }
  std::string describe() const override { return fmt::format("UDP socket {}", toString(socket_->local())); }
  Result<LinkId> openLink(std::span<const std::byte> remoteAddress) override;
  void closeLink(LinkId id) override {
    const auto link = links_.find(id);
    batch_.forget(link->second.to);
    if (!link->second.down) byPeer_.erase(link->second.to.peer);
    links_.erase(link);
  }
  LinkProperties linkProperties(LinkId id) const override {
    return {
        .maxDatagramBytes = links_.at(id).maxDatagramBytes, .verified = true, .transmitBurst = SendBatch::kMaxSegments};
  }
  std::string describeLink(LinkId id) const override {
    const Endpoint& own = socket_->local();
    return fmt::format("UDP from port {} of {} to {}", own.port(), placeOf(own), toString(links_.at(id).to.peer));
  }
  std::size_t receiveBurst() const override { return 64; }

  std::size_t receive(PacketSink& sink, std::size_t maxDatagrams) override;
  std::size_t transmit(LinkId id, std::span<const OutgoingDatagram> datagrams) override;
  void wakePeers() override { sendBatch(); }
  bool wakesForRoom() const override { return true; }
  std::string trouble(LinkId id) const override;
  void onTick(TimePoint /*now*/) override {}

  void armWakeup() override { wakeEvent_.arm(); }
  void disarmWakeup() override { wakeEvent_.disarm(); }
  void wake() override { wakeEvent_.wake(); }
  int wakeDescriptor() const override { return wakeEvent_.fd(); }
  void block(Duration timeout) override {
    const int full = full_.load(std::memory_order_relaxed);
    if (full == ENOBUFS) timeout = std::min<Duration>(timeout, kRetryFullInterface);
    pollfd ready{socket_->fd(), static_cast<short>(full == EAGAIN ? POLLIN | POLLOUT : POLLIN), 0};
    wakeEvent_.block({&ready, 1}, timeout);
    if ((ready.revents & POLLERR) != 0) errorsDue_.store(true, std::memory_order_relaxed);
  }

  PortCounters counters() const override {
    PortCounters counters = counters_;
    counters.droppedNoBuffer = socket_->dropped();
    return counters;
  }

 private:
  struct Link {
    SendBatch::Destination to;
    std::size_t maxDatagramBytes = 0;
    TimePoint failingSince{};   // with to.failing
    int lastError = 0;          // with to.failing
    std::optional<Error> down;  // carries nothing any more
  };

  void sendBatch();
  bool dropsWhatItRefuses();
  void onSendFailure(const SendBatch::Run& run, int error);
  void readErrors(PacketSink& sink);
  void fail(Link& link, ErrorCode code, const std::string& message);
  std::size_t handUp(PacketSink& sink, std::size_t maxDatagrams);

  const std::unique_ptr<UdpSocket> socket_;
  const std::optional<NetworkInterface> interface_;  // that had the socket's address; nothing: it was just removed
  const std::size_t mtu_;            // of links at most; 0: what the route carries
  const std::size_t overheadBytes_;  // IP and UDP headers
  WakeEvent wakeEvent_;
  std::unordered_map<LinkId, Link> links_;
  std::map<Endpoint, LinkId> byPeer_;  // of links that are not down
  LinkId lastLink_ = 0;
  SendBatch batch_;
  std::span<const UdpSocket::Received> received_;  // not handed up yet: from the first one's byte handedUpBytes_ on
  std::size_t handedUpBytes_ = 0;
  std::vector<LinkId> toReport_;  // down, and not told yet
  std::vector<std::pair<LinkId, std::size_t>> tooLarge_;  // onDatagramTooLarge() is due; one a link
  PortCounters counters_;
  TimePoint interfaceFullSince_ = kNever;  // it has taken nothing since
  std::atomic<int> full_{0};  // the batch had to stay: EAGAIN, no room in the socket; ENOBUFS, none in the interface
  std::atomic<bool> errorsDue_{false};  // the socket may have error messages
};

Result<LinkId> UdpPort::openLink(std::span<const std::byte> remoteAddress) {
  const auto decoded = decode(remoteAddress);
  if (!decoded) return decoded.error();
  const Endpoint& peer = decoded.value();
  const Endpoint& own = socket_->local();
  if (peer.isV6() != own.isV6()) {
    return Error{ErrorScope::kSession, ErrorCode::kConfiguration,
                 fmt::format("this rank is at {}, the peer at {}: name interfaces whose addresses are of one family",
                             toString(own), toString(peer))};
  }
  if (peer.isLoopback() != own.isLoopback()) {
    return Error{ErrorScope::kSession, ErrorCode::kConfiguration,
                 fmt::format("this rank is at {}, the peer at {}, and a loopback address leads to no other host: set "
                             "GLOO_SOCKET_IFNAME (or GLOO_BYPASS_INTERFACE) to the network's interface on all ranks",
                             toString(own), toString(peer))};
  }
  if (const auto known = byPeer_.find(peer); known != byPeer_.end()) return known->second;
  const auto routed = routeMtu(own, peer);
  if (!routed) return routed.error();
  const std::size_t mtu = mtu_ != 0 ? std::min(mtu_, routed.value()) : routed.value();
  if (mtu < wire::kMinDatagramBytes + overheadBytes_) {
    return Error{ErrorScope::kSession, ErrorCode::kConfiguration,
                 fmt::format("the way to {} carries {} bytes, less than {}", toString(peer), mtu,
                             wire::kMinDatagramBytes + overheadBytes_)};
  }
  const LinkId id = ++lastLink_;
  byPeer_.emplace(peer, id);
  links_[id].to = {.link = id, .peer = peer};
  links_[id].maxDatagramBytes = std::min(mtu - overheadBytes_, kLargestDatagram);
  return id;
}

// Sending ---------------------------------------------------------------------------------------

std::size_t UdpPort::transmit(LinkId id, std::span<const OutgoingDatagram> datagrams) {
  Link& link = links_.at(id);
  if (link.down) return 0;
  std::size_t sent = 0;
  for (const OutgoingDatagram& datagram : datagrams) {
    if (!batch_.append(link.to, datagram)) {
      sendBatch();
      if (!batch_.append(link.to, datagram)) {
        ++counters_.transmitFull;
        break;
      }
    }
    ++sent;
    counters_.bytesSent += kEthernetHeaderBytes + overheadBytes_ + datagram.header.size() + datagram.payload.size();
  }
  counters_.packetsSent += sent;
  return sent;
}

void UdpPort::sendBatch() {
  while (!batch_.empty()) {
    const UdpSocket::SendFailure failure = socket_->send(batch_);
    if (failure.anySent) interfaceFullSince_ = kNever;
    const bool full = failure.error == EAGAIN || (failure.error == ENOBUFS && !dropsWhatItRefuses());
    full_.store(full ? failure.error : 0, std::memory_order_relaxed);
    if (full || failure.error == 0) return;
    if (failure.error != ENOBUFS) onSendFailure(batch_.runs().front(), failure.error);
    batch_.remove(failure.segments);  // lost, as any datagram may be
  }
}

// The interface has refused a datagram.
bool UdpPort::dropsWhatItRefuses() {
  const TimePoint now = monotonicNow();
  interfaceFullSince_ = std::min(interfaceFullSince_, now);
  return now - interfaceFullSince_ >= kFullInterface;
}

// What the kernel refuses to send; or a message of the network has come meanwhile.
void UdpPort::onSendFailure(const SendBatch::Run& run, int error) {
  Link& link = links_.at(run.to->link);
  if (error == EMSGSIZE) {  // others pass
    const LinkId id = run.to->link;
    if (std::none_of(tooLarge_.begin(), tooLarge_.end(), [id](const auto& known) { return known.first == id; })) {
      tooLarge_.emplace_back(id, run.segmentBytes);
    }
    return;
  }
  link.lastError = error;
  // A pause of this process is none of the link's: what counts is that sending fails again, so long after it first did.
  const TimePoint now = monotonicNow();
  if (!std::exchange(run.to->failing, true)) {
    link.failingSince = now;
  } else if (now - link.failingSince >= kGiveUpAfter && interface_ && interface_->isDeleted(socket_->fd())) {
    fail(link, ErrorCode::kUnavailable, interface_->trouble(socket_->fd()));
  }
}

std::string UdpPort::trouble(LinkId id) const {
  const Link& link = links_.at(id);
  if (interface_) {
    if (std::string trouble = interface_->trouble(socket_->fd()); !trouble.empty()) return trouble;
  }
  if (!link.to.failing) return {};
  return fmt::format("nothing can be sent from {} to {}: {}", ipText(socket_->local()), toString(link.to.peer),
                     std::strerror(link.lastError));
}

void UdpPort::fail(Link& link, ErrorCode code, const std::string& message) {
  if (link.down) return;
  link.down = Error{ErrorScope::kSession, code, fmt::format("{}: {}", toString(link.to.peer), message)};
  byPeer_.erase(link.to.peer);
  toReport_.push_back(link.to.link);
}

// Receiving -------------------------------------------------------------------------------------

std::size_t UdpPort::receive(PacketSink& sink, std::size_t maxDatagrams) {
  if (!batch_.empty()) sendBatch();  // there may be room again
  if (socket_->metError() || errorsDue_.load(std::memory_order_relaxed)) readErrors(sink);
  for (const auto& [id, bytes] : std::exchange(tooLarge_, {})) {
    if (links_.contains(id)) sink.onDatagramTooLarge(id, bytes);
  }
  for (const LinkId id : std::exchange(toReport_, {})) {
    if (const auto link = links_.find(id); link != links_.end()) sink.onLinkDown(id, *link->second.down);
  }
  std::size_t received = handUp(sink, maxDatagrams);
  if (received == maxDatagrams) return received;
  received_ = socket_->receive();  // once: what one call brings is enough for a turn
  return received + handUp(sink, maxDatagrams - received);
}

std::size_t UdpPort::handUp(PacketSink& sink, std::size_t maxDatagrams) {
  std::size_t count = 0;
  for (; !received_.empty(); received_ = received_.subspan(1), handedUpBytes_ = 0) {
    const UdpSocket::Received& message = received_.front();
    const auto from = byPeer_.find(message.from);
    if (from == byPeer_.end()) {
      ++counters_.droppedForeign;
      continue;
    }
    while (handedUpBytes_ < message.bytes.size()) {
      if (count == maxDatagrams) return count;
      const auto rest = message.bytes.subspan(handedUpBytes_);
      const auto datagram = rest.first(std::min(message.segmentBytes, rest.size()));
      handedUpBytes_ += datagram.size();
      ++count;
      ++counters_.packetsReceived;
      counters_.bytesReceived += kEthernetHeaderBytes + overheadBytes_ + datagram.size();
      sink.onDatagram(from->second, datagram);
    }
  }
  return count;
}

void UdpPort::readErrors(PacketSink& sink) {
  errorsDue_.store(false, std::memory_order_relaxed);
  for (int i = 0; i < kErrorsAtOnce; ++i) {
    const auto error = socket_->nextError();
    if (!error) return;
    const auto known = byPeer_.find(error->peer);
    if (known == byPeer_.end() || !sink.sentBySession(known->second, error->quoted)) continue;
    Link& link = links_.at(known->second);
    if (error->portUnreachable) {
      fail(link, ErrorCode::kPeerVanished,
           "its machine says that the port is closed: the process ended, or was killed");
    } else if (error->mtu != 0) {
      sink.onDatagramTooLarge(known->second, error->mtu - std::min(error->mtu, overheadBytes_) + 1);
    }
  }
  errorsDue_.store(true, std::memory_order_relaxed);
}

}  // namespace

Result<std::unique_ptr<PacketPort>> makeUdpPort(const TransportConfig& config, Offload offload) {
  const auto refuse = [](std::string message) {
    return Error{ErrorScope::kDevice, ErrorCode::kConfiguration, std::move(message)};
  };
  auto local = chooseLocalAddress(config.interface, config.masterAddress);
  if (!local) return local.error();
  const std::size_t smallestMtu = wire::kMinDatagramBytes + (local.value().isV6() ? 48 : 28);
  if (config.mtu != 0 && config.mtu < smallestMtu) {
    return refuse(fmt::format("GLOO_BYPASS_MTU='{}' is not allowed at {}: it must be 0, or at least {} bytes", config.mtu,
                              toString(local.value()), smallestMtu));
  }
  auto socket = UdpSocket::open(local.value(), config.udpPorts, offload);
  if (!socket) return socket.error();
  auto port = std::make_unique<UdpPort>(std::move(socket).value(), config.mtu);
  if (!port->canBeWoken()) return Error{ErrorScope::kDevice, ErrorCode::kUnavailable, "no descriptor for an eventfd"};
  return std::unique_ptr<PacketPort>(std::move(port));
}

}  // namespace gloo_bypass::udp
