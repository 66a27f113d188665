#include "transport/udp/udp_rail.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/network/local_address.h"
#include "transport/progress/progress_engine.h"
#include "transport/udp/udp_port.h"
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

}  // namespace

Result<LinkId> UdpRail::openLink(const network::Endpoint& peer) {
  const network::Endpoint& own = socket_->local();
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
  const std::size_t smallest = wire::kMinDatagramBytes + overheadBytes_;
  // The kernel remembers what it was told of the way, by ICMP that anybody can send, and forgets it after minutes: good to begin with.
  std::size_t mtu = std::max(routed.value(), interface_ ? interface_->mtu(socket_->fd()) : 0);
  if (mtu_ != 0) mtu = std::min(mtu_, mtu);
  if (mtu < smallest) {
    return Error{ErrorScope::kSession, ErrorCode::kConfiguration,
                 fmt::format("the way to {} carries {} bytes, less than {}", toString(peer), mtu, smallest)};
  }
  const LinkId id = nextLink_;
  nextLink_ += step_;
  byPeer_.emplace(peer, id);
  links_[id].to = {.link = id, .peer = peer};
  links_[id].maxDatagramBytes = std::min(mtu - overheadBytes_, kLargestDatagram);
  links_[id].firstDatagramBytes = std::min(wire::kEthernetDatagramBytes, std::max(routed.value(), smallest) - overheadBytes_);
  return id;
}

void UdpRail::closeLink(LinkId id) {
  const auto link = links_.find(id);
  if (!link->second.down) byPeer_.erase(link->second.to.peer);
  auto closed = links_.extract(link);
  if (!batch_.empty()) closed_.push_back(std::move(closed));
}

LinkProperties UdpRail::linkProperties(LinkId id) const {
  const Link& link = links_.at(id);
  return {.maxDatagramBytes = link.maxDatagramBytes,
          .firstDatagramBytes = link.firstDatagramBytes,
          .verified = true,
          .transmitBurst = SendBatch::burst(link.maxDatagramBytes)};
}

std::string UdpRail::describeLink(LinkId id) const {
  const network::Endpoint& own = socket_->local();
  return fmt::format("UDP from port {} of {} to {}", own.port(), placeOf(own), toString(links_.at(id).to.peer));
}

PortCounters UdpRail::counters() const {
  PortCounters counters = counters_;
  counters.droppedNoBuffer = socket_->dropped();
  return counters;
}

pollfd UdpRail::wanted(Duration* timeout) const {
  const int full = full_.load(std::memory_order_relaxed);
  if (full == ENOBUFS) *timeout = std::min<Duration>(*timeout, kRetryFullInterface);
  return {socket_->fd(), static_cast<short>(full == EAGAIN ? POLLIN | POLLOUT : POLLIN), 0};
}

// Sending ---------------------------------------------------------------------------------------

std::size_t UdpRail::transmit(LinkId id, std::span<const OutgoingDatagram> datagrams) {
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

void UdpRail::sendBatch() {
  while (!batch_.empty()) {
    const UdpSocket::SendFailure failure = socket_->send(batch_);
    if (failure.anySent) interfaceFullSince_ = kNever;
    const bool full = failure.error == EAGAIN || (failure.error == ENOBUFS && !dropsWhatItRefuses());
    full_.store(full ? failure.error : 0, std::memory_order_relaxed);
    if (full) return;
    if (failure.error == 0) break;
    if (failure.error != ENOBUFS) onSendFailure(batch_.runs().front(), failure.error);
    batch_.remove(failure.segments);  // lost, as any datagram may be
  }
  closed_.clear();
}

// The interface has refused a datagram.
bool UdpRail::dropsWhatItRefuses() {
  const TimePoint now = monotonicNow();
  interfaceFullSince_ = std::min(interfaceFullSince_, now);
  return now - interfaceFullSince_ >= kFullInterface;
}

// What the kernel refuses to send; or a message of the network has come meanwhile.
void UdpRail::onSendFailure(const SendBatch::Run& run, int error) {
  const auto found = links_.find(run.to->link);
  if (found == links_.end()) return;  // closed since
  Link& link = found->second;
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

std::string UdpRail::trouble(LinkId id) const {
  const Link& link = links_.at(id);
  if (interface_) {
    if (std::string trouble = interface_->trouble(socket_->fd()); !trouble.empty()) return trouble;
  }
  if (!link.to.failing) return {};
  return fmt::format("nothing can be sent from {} to {}: {}", ipText(socket_->local()), toString(link.to.peer),
                     std::strerror(link.lastError));
}

void UdpRail::fail(Link& link, ErrorCode code, const std::string& message) {
  if (link.down) return;
  link.down = Error{ErrorScope::kSession, code, fmt::format("{}: {}", toString(link.to.peer), message)};
  byPeer_.erase(link.to.peer);
  toReport_.push_back(link.to.link);
}

// Receiving -------------------------------------------------------------------------------------

std::size_t UdpRail::receive(PacketSink& sink, std::size_t maxDatagrams) {
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

std::size_t UdpRail::handUp(PacketSink& sink, std::size_t maxDatagrams) {
  std::size_t count = 0;
  if (!received_.empty()) sink.onArrivals();
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

void UdpRail::readErrors(PacketSink& sink) {
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

}  // namespace gloo_bypass::udp
