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
// Error messages read in one receive(); the rest wait for the next.
constexpr int kErrorsAtOnce = 64;
// No socket holds more at a time: this is its buffer, and the kernel doubles the requested size.
constexpr std::uint64_t kMostInSocket = 16u << 20;
// Every message, even an empty one, takes more of that buffer: the kernel counts its own memory too.
constexpr std::size_t kLeastInSocket = 256;
// An interface does not report when its queue has room again.
constexpr auto kRetryFullInterface = std::chrono::milliseconds(1);
// A full queue moves on within this time. What the interface still refuses then, it drops: a veth pair drops what the
// other end's MTU does not carry, an interface without carrier drops everything.
constexpr auto kFullInterface = std::chrono::milliseconds(10);

}  // namespace

UdpRail::UdpRail(std::unique_ptr<UdpSocket> socket, std::size_t mtu, LinkId first, LinkId step)
    : socket_(std::move(socket)), mtu_(mtu), step_(step), nextLink_(first) {
  acceptOnlyPeers();
}

// Those of links that were closed since still pass; handUp() drops them.
void UdpRail::acceptOnlyPeers() {
  std::vector<network::Endpoint> peers;
  for (const auto& known : byPeer_) peers.push_back(known.first);
  socket_->acceptOnly(peers);
}

Result<LinkId> UdpRail::openLink(const network::Endpoint& peer) {
  if (const auto known = byPeer_.find(peer); known != byPeer_.end()) {
    if (!links_.at(known->second).down) return known->second;
    byPeer_.erase(known);  // of a process that has ended
  }
  const auto routed = routeMtu(socket_->local(), peer);
  if (!routed) return routed.error();
  const std::size_t smallest = wire::kMinDatagramBytes + overheadBytes_;
  // The kernel's MTU of the route, which anyone can lower by ICMP, is good enough to begin with: the kernel forgets it
  // after minutes.
  std::size_t mtu = std::max(routed.value(), interface_ ? interface_->mtu(socket_->fd()) : 0);
  if (mtu_ != 0) mtu = std::min(mtu_, mtu);
  if (mtu < smallest) {
    return Error{ErrorScope::kSession, ErrorCode::kConfiguration,
                 fmt::format("the way to {} carries packets of {} bytes, fewer than the {} that every network carries: "
                             "raise the interface's MTU",
                             toString(peer), mtu, smallest)};
  }
  const LinkId id = nextLink_;
  nextLink_ += step_;
  byPeer_.emplace(peer, id);
  acceptOnlyPeers();
  const std::size_t largest = std::min(mtu - overheadBytes_, kLargestDatagram);
  links_[id].to = {.link = id, .peer = peer};
  links_[id].properties = {
      .maxDatagramBytes = largest,
      .firstDatagramBytes = std::min(wire::kEthernetDatagramBytes, std::max(routed.value(), smallest) - overheadBytes_),
      .verified = true,
      .transmitBurst = SendBatch::burst(largest)};
  return id;
}

void UdpRail::closeLink(LinkId id) {
  const auto link = links_.find(id);
  forgetPeer(link->second);
  auto closed = links_.extract(link);
  if (!batch_.empty()) closed_.push_back(std::move(closed));
}

std::string UdpRail::describeLink(LinkId id) const {
  return fmt::format("UDP from port {} of {} to {}", local().port(), placeOf(local()), toString(links_.at(id).to.peer));
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

// Whether the interface drops the datagrams that it refuses now.
bool UdpRail::dropsWhatItRefuses() {
  const TimePoint now = monotonicNow();
  interfaceFullSince_ = std::min(interfaceFullSince_, now);
  return now - interfaceFullSince_ >= kFullInterface;
}

// The kernel refused to send, or an error message of the network arrived meanwhile.
void UdpRail::onSendFailure(const SendBatch::Run& run, int error) {
  const auto found = links_.find(run.to->link);
  if (found == links_.end() || found->second.down) return;  // closed, or down, meanwhile
  Link& link = found->second;
  if (error == EMSGSIZE) {  // other datagrams may pass
    if (link.tooLarge == 0) link.tooLarge = run.segmentBytes;
    toReport_.insert(run.to->link);
    return;
  }
  link.lastError = error;
  // Do not count time in which this process was stopped: what counts is that sending fails again, this long after the
  // first failure.
  const TimePoint now = monotonicNow();
  if (!std::exchange(run.to->failing, true)) {
    link.failingSince = now;
  } else if (now - link.failingSince >= kGiveUpAfter && interface_ && interface_->isDeleted(socket_->fd())) {
    fail(link, ErrorCode::kUnavailable, interface_->trouble(socket_->fd()));
  }
}

std::string UdpRail::trouble(LinkId id) const {
  const Link& link = links_.at(id);
  std::string ofInterface = interface_ ? interface_->trouble(socket_->fd()) : "";
  if (!ofInterface.empty() || !link.to.failing) return ofInterface;
  return fmt::format("nothing can be sent from {} to {}: {}", ipText(socket_->local()), toString(link.to.peer),
                     std::strerror(link.lastError));
}

void UdpRail::fail(Link& link, ErrorCode code, const std::string& message) {
  if (link.down) return;
  link.down = Error{ErrorScope::kSession, code, fmt::format("{}: {}", toString(link.to.peer), message)};
  link.tellAt = takenBytes_ + kMostInSocket;
  toReport_.insert(link.to.link);
}

void UdpRail::forgetPeer(const Link& link) {
  const auto known = byPeer_.find(link.to.peer);
  if (known != byPeer_.end() && known->second == link.to.link) byPeer_.erase(known);
}

// Receiving -------------------------------------------------------------------------------------

std::size_t UdpRail::receive(PacketSink& sink, std::size_t maxDatagrams) {
  if (!batch_.empty()) sendBatch();  // the socket may have room again
  if (socket_->metError()) readErrors(sink);
  std::size_t received = handUp(sink, maxDatagrams);
  if (received < maxDatagrams) {
    takeFromSocket();  // once: one call brings enough for a turn
    received += handUp(sink, maxDatagrams - received);
  }
  if (!toReport_.empty()) report(sink);
  return received;
}

void UdpRail::takeFromSocket() {
  received_ = socket_->receive();
  socketEmpty_ = received_.empty();
  for (const UdpSocket::Received& message : received_) takenBytes_ += std::max(message.bytes.size(), kLeastInSocket);
  counters_.droppedNoBuffer = socket_->dropped();
}

// In the kernel, the news that a peer has ended overtakes the data that it had sent before.
void UdpRail::report(PacketSink& sink) {
  std::erase_if(toReport_, [&](LinkId id) {
    const auto found = links_.find(id);
    if (found == links_.end()) return true;  // closed meanwhile
    Link& link = found->second;
    if (link.tooLarge != 0) sink.onDatagramTooLarge(id, std::exchange(link.tooLarge, 0));
    if (!link.down) return true;
    if (!socketEmpty_ && takenBytes_ < link.tellAt) return false;
    forgetPeer(link);
    sink.onLinkDown(id, *link.down);
    return true;
  });
}

std::size_t UdpRail::handUp(PacketSink& sink, std::size_t maxDatagrams) {
  std::size_t count = 0;
  if (!received_.empty()) sink.onArrivals();
  for (; !received_.empty(); received_ = received_.subspan(1), handedUpBytes_ = 0) {
    const UdpSocket::Received& message = received_.front();
    const auto from = byPeer_.find(message.from);
    if (from == byPeer_.end()) {
      ++counters_.droppedForeign;
      sink.onStranger();
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
  for (int i = 0; i < kErrorsAtOnce; ++i) {
    const auto error = socket_->nextError();
    if (!error) return;
    const auto known = byPeer_.find(error->peer);
    if (known == byPeer_.end() || !sink.sentBySession(known->second, error->quoted)) continue;
    Link& link = links_.at(known->second);
    if (error->portUnreachable) {
      if (!sink.onPortUnreachable(known->second)) continue;
      fail(link, ErrorCode::kPeerVanished,
           "its machine says that the port is closed: the process ended, or was killed");
    } else if (error->mtu != 0) {
      sink.onDatagramTooLarge(known->second, error->mtu - std::min(error->mtu, overheadBytes_) + 1);
    }
  }
}

}  // namespace gloo_bypass::udp
