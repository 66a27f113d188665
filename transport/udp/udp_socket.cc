#include "transport/udp/udp_socket.h"

#include <fmt/format.h>
#include <linux/errqueue.h>
#include <netinet/udp.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>

#include "transport/base/exhausted.h"
#include "transport/network/local_address.h"
#include "transport/progress/progress_engine.h"
#include "transport/udp/peer_filter.h"

namespace gloo_bypass::udp {
namespace {

// Holds a window of a fast path. The kernel grants less if its limit is lower and we may not exceed it.
constexpr int kSocketBufferBytes = 4 << 20;
// An error message that waits on the socket ends one unrelated call.
constexpr int kTries = 3;

// The kernel's answer to segments where a checksum or IPsec cannot be computed on them. No error message of the network
// maps to it (the kernel's icmp_err_convert, icmpv6_err_convert): anyone can send those, and they end the next call.
constexpr int kRefusedSegments = EIO;
// The route may change. Each new attempt costs some calls, and no datagram.
constexpr Duration kShortestRefusal = std::chrono::seconds(1), kLongestRefusal = std::chrono::minutes(1);

bool setOption(int fd, int level, int name, int value) {
  return ::setsockopt(fd, level, name, &value, sizeof(value)) == 0;
}

void enlarge(int fd, int forced, int plain) {
  if (!setOption(fd, SOL_SOCKET, forced, kSocketBufferBytes))
    (void)setOption(fd, SOL_SOCKET, plain, kSocketBufferBytes);
}

void sayNoOffload() {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  std::fprintf(stderr, "gloo-bypass: UDP: each datagram is sent by itself, as there is no segmentation offload (%s)\n",
               std::strerror(errno));
}

template <typename Value>
Value valueOf(const cmsghdr& control) {
  Value value;
  std::memcpy(&value, CMSG_DATA(&control), sizeof(value));
  return value;
}

}  // namespace

template <std::size_t count>
msghdr& UdpSocket::Messages<count>::set(std::size_t i, network::Endpoint& peer, std::span<std::byte> data) {
  bytes[i] = {data.data(), data.size()};
  msghdr& header = headers[i].msg_hdr;
  header = {};
  header.msg_name = &peer;
  header.msg_namelen = sizeof(peer);
  header.msg_iov = &bytes[i];
  header.msg_iovlen = 1;
  header.msg_control = control[i].data();
  header.msg_controllen = control[i].size();
  return header;
}

Result<std::unique_ptr<UdpSocket>> UdpSocket::open(const network::Endpoint& local, const PortRange& ports,
                                                   Offload offload) {
  const auto fails = [&](const char* call) {
    return Error{ErrorScope::kDevice, ErrorCode::kConfiguration,
                 fmt::format("UDP at {}: {}", ipText(local), failedCall(call).text)};
  };
  FileDescriptor fd = FileDescriptor(::socket(local.any.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0))
                          .leftByForkedChildren();
  if (!fd) return fails("socket");
  // Before the socket has an address: otherwise an error message that anyone sends there would answer in the sandbox's
  // place.
  const ManyAtOnce many{.send = ::sendmmsg(fd.get(), nullptr, 0, MSG_DONTWAIT) == 0,
                        .receive = ::recvmmsg(fd.get(), nullptr, 0, MSG_DONTWAIT, nullptr) == 0};
  enlarge(fd.get(), SO_RCVBUFFORCE, SO_RCVBUF);
  enlarge(fd.get(), SO_SNDBUFFORCE, SO_SNDBUF);
  (void)setOption(fd.get(), SOL_SOCKET, SO_RXQ_OVFL, 1);
  const bool v6 = local.isV6();
  // Or else the kernel would fragment.
  if (!setOption(fd.get(), v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER,
                 v6 ? IPV6_PMTUDISC_PROBE : IP_PMTUDISC_PROBE)) {
    return fails("setsockopt(IP_MTU_DISCOVER)");
  }
  if (!setOption(fd.get(), v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_RECVERR : IP_RECVERR, 1)) {
    return fails("setsockopt(IP_RECVERR)");
  }
  network::Endpoint bound = local;
  const char* failed = "bind";
  const int error = bindFirstFree(ports, [&](std::uint16_t port) {
    bound.setPort(port);
    socklen_t length = sizeof(bound);
    if (::bind(fd.get(), &bound.any, length) != 0) return errno;
    failed = "getsockname";
    return ::getsockname(fd.get(), &bound.any, &length) == 0 ? 0 : errno;
  });
  if (error == EADDRNOTAVAIL) {
    return Error{ErrorScope::kDevice, ErrorCode::kConfiguration,
                 fmt::format("UDP at {}: {}: set GLOO_BYPASS_INTERFACE to an interface or an address of this machine",
                             ipText(local), std::strerror(error))};
  }
  if (error == EADDRINUSE || error == EACCES) {
    return Error{ErrorScope::kDevice, ErrorCode::kConfiguration, noPort(ports, placeOf(local), error)};
  }
  if (error != 0) return fails(failed);
  return std::unique_ptr<UdpSocket>(new UdpSocket(std::move(fd), bound, many, offload));
}

UdpSocket::UdpSocket(FileDescriptor fd, const network::Endpoint& local, ManyAtOnce many, Offload offload)
    : fd_(std::move(fd)),
      local_(local),
      many_(many),
      offloads_(offload == Offload::kWhereThereIs),
      receivedBytes_(std::make_unique_for_overwrite<std::byte[]>(kReceived * kReceivedBytes)) {
  // Segment size 0: no segments unless a message asks for them.
  if (!offloads_ ||
      (setOption(fd_.get(), IPPROTO_UDP, UDP_SEGMENT, 0) && setOption(fd_.get(), IPPROTO_UDP, UDP_GRO, 1)))
    return;
  offloads_ = false;
  sayNoOffload();
}

void UdpSocket::acceptOnly(std::span<const network::Endpoint> peers) {
  if (peers.size() <= kMostFilteredPeers) {
    auto program = peerFilter(peers, local_.isV6());
    const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
    if (::setsockopt(fd_.get(), SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)) == 0) return;
  }
  // Not the one before, which has other peers.
  (void)setOption(fd_.get(), SOL_SOCKET, SO_DETACH_FILTER, 0);
}

// Sending ---------------------------------------------------------------------------------------

std::size_t UdpSocket::prepare(const SendBatch& batch) {
  std::size_t count = 0;
  pieces_.clear();
  pieces_.reserve(2 * batch.size());
  for (const SendBatch::Run& run : batch.runs()) {
    const auto datagrams = batch.datagrams(run);
    const std::size_t step = cutsFor(*run.to) ? datagrams.size() : 1;
    for (std::size_t at = 0; at < datagrams.size(); at += step) {
      if (count == SendBatch::kMaxRuns) return count;
      prepareMessage(count++, run, datagrams.subspan(at, step));
    }
  }
  return count;
}

bool UdpSocket::cutsFor(const SendBatch::Destination& to) const {
  return offloads_ && (to.singlyUntil == TimePoint{} || monotonicNow() >= to.singlyUntil);
}

// The messages of `datagrams`: the run's or one of them. Adjacent memory becomes one piece.
void UdpSocket::prepareMessage(std::size_t number, const SendBatch::Run& run,
                               std::span<const SendBatch::Datagram> datagrams) {
  const std::size_t first = pieces_.size();
  const auto add = [&](const std::byte* begin, std::size_t bytes) {
    if (bytes == 0) return;
    if (pieces_.size() > first && static_cast<std::byte*>(pieces_.back().iov_base) + pieces_.back().iov_len == begin) {
      pieces_.back().iov_len += bytes;
    } else {
      pieces_.push_back({const_cast<std::byte*>(begin), bytes});
    }
  };
  for (const SendBatch::Datagram& datagram : datagrams) {
    add(datagram.begin, datagram.copied);
    add(datagram.inPlace.data(), datagram.inPlace.size());
  }
  outgoingSegments_[number] = {run.to, datagrams.size()};
  msghdr& header = outgoing_.set(number, run.to->peer, {});
  header.msg_iov = pieces_.data() + first;
  header.msg_iovlen = pieces_.size() - first;
  header.msg_controllen = 0;
  if (datagrams.size() == 1) return;
  const auto size = static_cast<std::uint16_t>(run.segmentBytes);
  header.msg_controllen = CMSG_SPACE(sizeof(size));
  cmsghdr* const control = CMSG_FIRSTHDR(&header);
  *control = {.cmsg_len = CMSG_LEN(sizeof(size)), .cmsg_level = IPPROTO_UDP, .cmsg_type = UDP_SEGMENT};
  std::memcpy(CMSG_DATA(control), &size, sizeof(size));
}

int UdpSocket::sendMessages(std::size_t count) {
  constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
  if (many_.send) return ::sendmmsg(fd_.get(), outgoing_.headers.data(), static_cast<unsigned>(count), kFlags);
  int sent = 0;
  for (mmsghdr& message : std::span(outgoing_.headers).first(count)) {
    if (::sendmsg(fd_.get(), &message.msg_hdr, kFlags) < 0) {
      if (sent > 0 && errno != EAGAIN && errno != ENOBUFS) noteError();  // as in receiveMessages()
      return sent > 0 ? sent : -1;
    }
    ++sent;
  }
  return sent;
}

UdpSocket::SendFailure UdpSocket::send(SendBatch& batch) {
  bool anySent = false;
  for (int tries = 0; !batch.empty();) {
    const std::size_t count = prepare(batch);
    const int sent = sendMessages(count);
    for (int i = 0; i < sent; ++i) {
      const auto& [to, segments] = outgoingSegments_[static_cast<std::size_t>(i)];
      to->failing = false;
      if (segments > 1) to->singlyUntil = {}, to->singlyFor = {};
      batch.remove(segments);
      tries = 0;
    }
    anySent = anySent || sent > 0;
    if (sent > 0 || errno == EINTR) continue;
    const std::size_t segments = outgoingSegments_[0].second;
    if (errno == EAGAIN || errno == ENOBUFS) return {errno, segments, anySent};
    noteError();
    if (++tries < kTries) continue;
    if (segments == 1 || errno != kRefusedSegments) {
      // Kernels before 6.14 return EINVAL for segments larger than the interface's MTU.
      return {segments > 1 && errno == EINVAL ? EMSGSIZE : errno, segments, anySent};
    }
    sayNoOffload();
    SendBatch::Destination& to = *outgoingSegments_[0].first;
    to.singlyFor = std::clamp<Duration>(2 * to.singlyFor, kShortestRefusal, kLongestRefusal);
    to.singlyUntil = monotonicNow() + to.singlyFor;
    tries = 0;
  }
  return {.anySent = anySent};
}

// Receiving -------------------------------------------------------------------------------------

int UdpSocket::receiveMessages() {
  if (many_.receive) return ::recvmmsg(fd_.get(), incoming_.headers.data(), kReceived, MSG_DONTWAIT, nullptr);
  int count = 0;
  for (mmsghdr& message : incoming_.headers) {
    const ssize_t length = ::recvmsg(fd_.get(), &message.msg_hdr, MSG_DONTWAIT);
    if (length < 0 && count > 0 && errno != EAGAIN) noteError();  // the next call will not return it again
    if (length < 0) return count > 0 ? count : -1;
    message.msg_len = static_cast<unsigned>(length);
    ++count;
  }
  return count;
}

std::span<const UdpSocket::Received> UdpSocket::receive() {
  for (std::size_t i = 0; i < kReceived; ++i) {
    incoming_.set(i, received_[i].from, {receivedBytes_.get() + i * kReceivedBytes, kReceivedBytes});
  }
  int count = -1;
  for (int tries = 0; count < 0 && tries < kTries; ++tries) {
    count = receiveMessages();
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) noteError();
  }
  const auto received = std::span(received_).first(static_cast<std::size_t>(std::max(count, 0)));
  for (std::size_t i = 0; i < received.size(); ++i) {
    mmsghdr& message = incoming_.headers[i];
    received[i].bytes = {receivedBytes_.get() + i * kReceivedBytes, message.msg_len};
    received[i].segmentBytes = message.msg_len;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message.msg_hdr); c != nullptr; c = CMSG_NXTHDR(&message.msg_hdr, c)) {
      if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
        received[i].segmentBytes = static_cast<std::size_t>(std::max(valueOf<int>(*c), 1));
      } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
        // The kernel's total, in 32 bits.
        dropped_ += valueOf<std::uint32_t>(*c) - static_cast<std::uint32_t>(dropped_);
      }
    }
  }
  return received;
}

std::optional<UdpSocket::NetworkError> UdpSocket::nextError() {
  NetworkError told;
  Messages<1> message;
  msghdr& header = message.set(0, told.peer, quoted_);
  for (ssize_t length = 0; (length = ::recvmsg(fd_.get(), &header, MSG_ERRQUEUE | MSG_DONTWAIT)) >= 0;
       message.set(0, told.peer, quoted_)) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      const bool v6 = c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR;
      if (!v6 && !(c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR)) continue;
      const auto error = valueOf<sock_extended_err>(*c);
      // Other origins are our own kernel, and send() has already returned those.
      if (error.ee_origin != (v6 ? SO_EE_ORIGIN_ICMP6 : SO_EE_ORIGIN_ICMP)) continue;
      told.portUnreachable = error.ee_errno == ECONNREFUSED;  // only this message means it
      told.mtu = error.ee_errno == EMSGSIZE ? error.ee_info : 0;
      told.quoted = std::span(quoted_).first(static_cast<std::size_t>(length));
      noteError();  // there may be more
      return told;
    }
  }
  return {};
}

}  // namespace gloo_bypass::udp
