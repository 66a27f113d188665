#include "transport/dpdk/port_reservation.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace gloo_bypass::dpdk {
namespace {

constexpr int kReceiveBufferBytes = 2048;  // the kernel's minimum: a packet that passes the filter only signals
constexpr int kDrainLimit = 64;

}  // namespace

Result<PortReservation> PortReservation::create(const KernelInterface& interface, const PortRange& ports) {
  PortReservation reservation;
  // Once this socket is closed, the kernel answers a peer that still sends.
  reservation.fd_ =
      FileDescriptor(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)).leftByForkedChildren();
  const int fd = reservation.fd_.get();
  if (fd < 0) {
    return Error{ErrorScope::kDevice, ErrorCode::kUnavailable, fmt::format("no UDP socket: {}", std::strerror(errno))};
  }
  (void)::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kReceiveBufferBytes, sizeof(kReceiveBufferBytes));
  reservation.setFilter(0);
  sockaddr_in address{};
  const auto bindTo = [&](std::uint16_t port) {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(interface.ip);
    address.sin_port = htons(port);
    socklen_t length = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    return ::bind(fd, any, length) == 0 && ::getsockname(fd, any, &length) == 0 ? 0 : errno;
  };
  if (const int error = bindFirstFree(ports, bindTo); error != 0) {
    return Error{ErrorScope::kDevice, error == EADDRINUSE ? ErrorCode::kConfiguration : ErrorCode::kUnavailable,
                 noPort(ports, fmt::format("{} on {}", toString(interface.ip), interface.name), error)};
  }
  reservation.port_ = ntohs(address.sin_port);
  return reservation;
}

void PortReservation::setFilter(std::uint32_t acceptedBytes) const {
  sock_filter instruction = BPF_STMT(BPF_RET | BPF_K, acceptedBytes);
  const sock_fprog program{1, &instruction};
  (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

void PortReservation::arm() const { setFilter(1); }

void PortReservation::disarm() const {
  setFilter(0);
  char byte;
  for (int i = 0; i < kDrainLimit && ::recv(fd_.get(), &byte, 1, MSG_DONTWAIT | MSG_TRUNC) >= 0; ++i) {
  }
}

}  // namespace gloo_bypass::dpdk
