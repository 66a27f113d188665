#include "transport/capture/marker_socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "transport/base/whole_number.h"
#include "transport/wire/step_marker.h"

namespace gloo_bypass::capture {
namespace {

constexpr std::size_t kLongestMarker = 200;

std::optional<sockaddr_in> parseAddress(const std::string& text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  std::uint16_t port = wire::kStepMarkerPort;
  const std::size_t colon = text.find(':');
  if (colon != std::string::npos) {
    const auto given = wholeNumber<std::uint16_t>(std::string_view(text).substr(colon + 1), 1);
    if (!given) return {};
    port = *given;
  }
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr) != 1) return {};
  return address;
}

void put16(std::byte* to, std::uint32_t value) {
  to[0] = std::byte(value >> 8);
  to[1] = std::byte(value);
}
void put32(std::byte* to, std::uint32_t value) {
  put16(to, value >> 16);
  put16(to + 2, value & 0xffff);
}

std::vector<std::byte> markerFrame(const sockaddr_in& from, const sockaddr_in& to, std::span<const std::byte> payload) {
  constexpr std::size_t kEthernet = 14, kIpv4 = 20, kUdp = 8;
  std::vector<std::byte> frame(kEthernet + kIpv4 + kUdp + payload.size());
  frame[0] = frame[6] = std::byte{2};
  put16(&frame[12], 0x0800);
  std::byte* const ip = &frame[kEthernet];
  put16(ip, 0x4500);
  put16(ip + 2, static_cast<std::uint32_t>(frame.size() - kEthernet));
  put16(ip + 8, 64 << 8 | IPPROTO_UDP);
  put32(ip + 12, ntohl(from.sin_addr.s_addr));
  put32(ip + 16, ntohl(to.sin_addr.s_addr));
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < kIpv4; i += 2)
    sum += std::to_integer<std::uint32_t>(ip[i]) << 8 | std::to_integer<std::uint32_t>(ip[i + 1]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  put16(ip + 10, ~sum & 0xffff);
  std::byte* const udp = ip + kIpv4;
  put16(udp, ntohs(from.sin_port));
  put16(udp + 2, ntohs(to.sin_port));
  put16(udp + 4, static_cast<std::uint32_t>(kUdp + payload.size()));
  if (!payload.empty()) std::memcpy(udp + kUdp, payload.data(), payload.size());
  return frame;
}

// The kernel's time of reception; without one, now.
UnixTime timeOf(msghdr& message) {
  timespec time{};
  (void)::clock_gettime(CLOCK_REALTIME, &time);
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_TIMESTAMPNS)
      std::memcpy(&time, CMSG_DATA(part), sizeof time);
  }
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

bool MarkerSocket::isAddress(const std::string& address) { return parseAddress(address).has_value(); }

Result<MarkerSocket> MarkerSocket::open(const std::string& text) {
  const auto wrong = [](std::string what) {
    return Error{ErrorScope::kDevice, ErrorCode::kUnavailable, std::move(what)};
  };
  const auto address = parseAddress(text);
  if (!address) return wrong("neither an IPv4 address nor ADDRESS:PORT");
  FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    return wrong(fmt::format("cannot be received there: {}", std::strerror(errno)));
  }
  const int on = 1;
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
  return MarkerSocket(std::move(socket));
}

std::size_t MarkerSocket::receive(
    const std::function<void(UnixTime received, std::span<const std::byte> frame)>& onMarker) {
  std::array<std::byte, kLongestMarker> bytes;
  for (std::size_t i = 0; i < kMarkersALook; ++i) {
    sockaddr_in from{}, to{};
    iovec vector{bytes.data(), bytes.size()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(timespec))> control;
    msghdr message{};
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t size = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    if (size < 0) return i;
    socklen_t length = sizeof to;
    (void)::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&to), &length);
    onMarker(timeOf(message), markerFrame(from, to, std::span(bytes).first(static_cast<std::size_t>(size))));
  }
  return kMarkersALook;
}

}  // namespace gloo_bypass::capture
