#include "transport/base/packet_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "transport/base/exhausted.h"

namespace gloo_bypass {
namespace {

// Peers that connect while the owner computes wait here; further ones get kBusy and try again.
constexpr int kBacklog = 64;
// The most that one message can carry (the kernel's SCM_MAX_FD). The kernel closes descriptors that do not fit, and may
// block in it.
constexpr std::size_t kMaxDescriptors = 253;

// A path, or a name in the network namespace if it begins with @. The address's length; 0: too long or empty.
socklen_t fillAddress(const std::string& path, sockaddr_un& address) {
  if (path.empty() || path.size() > kMaxSocketPathBytes) return 0;
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (path[0] != '@') return sizeof(address);
  address.sun_path[0] = '\0';
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
}

FileDescriptor newSocket() {
  return FileDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)).leftByForkedChildren();
}

// The descriptor may be a socket that its sender made linger: close() would block until its bytes are gone. Fails if it
// is not a socket.
FileDescriptor closedAtOnce(int received) {
  constexpr linger kOff{.l_onoff = 0, .l_linger = 0};
  (void)::setsockopt(received, SOL_SOCKET, SO_LINGER, &kOff, sizeof(kOff));
  return FileDescriptor(received);
}

}  // namespace

Result<FileDescriptor> listenPacketSocket(const std::string& path) {
  const std::string temporary = path + ".tmp";
  sockaddr_un address;
  if (fillAddress(temporary, address) == 0) {
    return Error{
        ErrorScope::kDevice, ErrorCode::kConfiguration,
        "its path is longer than " + std::to_string(kMaxSocketPathBytes - 4) + " bytes: choose a shorter directory"};
  }
  const auto refused = [&](const char* call) {
    const auto [code, text] = failedCall(call);
    ::unlink(temporary.c_str());
    return Error{ErrorScope::kDevice, code, text};
  };
  FileDescriptor fd = newSocket();
  if (!fd) return refused("socket");
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return refused("bind");
  if (::listen(fd.get(), kBacklog) != 0) return refused("listen");
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return refused("rename");
  return fd;
}

ConnectResult connectPacketSocket(const std::string& path, FileDescriptor& out) {
  sockaddr_un address;
  const socklen_t length = fillAddress(path, address);
  if (length == 0) return ConnectResult::kRefused;
  FileDescriptor fd = newSocket();
  if (fd && ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) == 0) {
    out = std::move(fd);
    return ConnectResult::kConnected;
  }
  if (errno == EAGAIN || errno == EINTR) return ConnectResult::kBusy;
  if (errno == ECONNREFUSED || errno == ENOENT) return ConnectResult::kRefused;
  return exhausted(errno).empty() ? ConnectResult::kFailed : ConnectResult::kExhausted;
}

Result<FileDescriptor> listenUnderName(const std::string& name) {
  sockaddr_un address;
  const socklen_t length = fillAddress(name, address);
  const auto refused = [](const char* call) {
    const auto [code, text] = failedCall(call);
    return Error{ErrorScope::kDevice, code, text};
  };
  FileDescriptor fd = newSocket();
  if (!fd) return refused("socket");
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) return refused("bind");
  if (::listen(fd.get(), kBacklog) != 0) return refused("listen");
  return fd;
}

FileDescriptor acceptPacketSocket(int listener) {
  return FileDescriptor(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)).leftByForkedChildren();
}

PacketIo sendPacket(int fd, std::span<const std::byte> packet, int attachedFd, int secondFd) {
  iovec vector{const_cast<std::byte*>(packet.data()), packet.size()};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  const std::array descriptors{attachedFd, secondFd};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(descriptors))] = {};
  if (attachedFd >= 0) {
    const std::size_t bytes = secondFd >= 0 ? sizeof(descriptors) : sizeof(int);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(header), descriptors.data(), bytes);
  }
  for (;;) {
    const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == static_cast<ssize_t>(packet.size())) return PacketIo::kDone;
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == ETOOMANYREFS) return PacketIo::kExhausted;
    return sent < 0 && errno == EAGAIN ? PacketIo::kWouldBlock : PacketIo::kClosed;
  }
}

PacketIo receivePacket(int fd, std::span<std::byte> buffer, std::size_t& length, FileDescriptor& attached,
                       FileDescriptor* second) {
  iovec vector{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  // Room for credentials too: DPDK's driver enables them, and then both ends send them.
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int)) + CMSG_SPACE(sizeof(ucred))];
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t received;
  do {
    received = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return errno == EAGAIN ? PacketIo::kWouldBlock : PacketIo::kClosed;
  bool surplus = false;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; i < (header->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int receivedFd;
      std::memcpy(&receivedFd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      FileDescriptor owned = closedAtOnce(receivedFd);
      if (i > 1 || (i == 1 && second == nullptr)) {
        surplus = true;
      } else {
        (i == 0 ? attached : *second) = std::move(owned);
      }
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0 && !surplus) {
    const FileDescriptor another(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!another) return PacketIo::kExhausted;
  }
  if (surplus || received == 0 || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return PacketIo::kClosed;
  length = static_cast<std::size_t>(received);
  return PacketIo::kDone;
}

bool peerIsSameUser(int fd) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 && credentials.uid == ::geteuid();
}

}  // namespace gloo_bypass
