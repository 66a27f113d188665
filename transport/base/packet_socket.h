// Unix sockets that keep packet borders (SOCK_SEQPACKET) and pass a file descriptor with a packet. All are non-blocking
// and close-on-exec. Setup errors are a Status; I/O returns a PacketIo.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"

namespace gloo_bypass {

// Longest path a socket can have here: sun_path is 108 bytes with its terminator.
inline constexpr std::size_t kMaxSocketPathBytes = 107;

enum class PacketIo { kDone, kWouldBlock, kClosed, kExhausted };

// The path appears only once the socket listens, so a refused connect always means a dead owner. Errors: kConfiguration
// (the path's length), kExhausted, kUnavailable; they name the failed call, not the path.
Result<FileDescriptor> listenPacketSocket(const std::string& path);

// The same under a name that begins with @ and lives in the network namespace, not in a file system: nothing is left
// behind, and any user of the machine can connect (peerIsSameUser).
Result<FileDescriptor> listenUnderName(const std::string& name);

// `path`: either kind.
enum class ConnectResult { kConnected, kBusy, kExhausted, kRefused, kFailed };
// kBusy: the listener's backlog is full, try again. kExhausted: this process or machine has no descriptor or memory
// left; errno says which. kRefused: no one listens (any more). kFailed: the listener cannot be reached; errno says why
// (a security module forbids it, say).
ConnectResult connectPacketSocket(const std::string& path, FileDescriptor& out);
// Empty: no one is waiting (errno: EAGAIN), or the connection cannot be accepted.
FileDescriptor acceptPacketSocket(int listener);

// `attachedFd` -1: none, and then no second. The caller keeps them. kExhausted: too many descriptors are in flight
// already (errno: ETOOMANYREFS).
PacketIo sendPacket(int fd, std::span<const std::byte> packet, int attachedFd = -1, int secondFd = -1);
// Sets `length`; a packet longer than `buffer` ends in kClosed, since no correct peer sends one, and so does a second
// descriptor without a place for it. kExhausted: descriptors came, and this process has none left for them; errno names
// the limit.
//
// A received socket may linger (SO_LINGER); this call turns that off, so that closing it does not block. Closing can
// still block on a process of the same user, in two cases: the descriptor is a file of its FUSE file system, which
// answers flush when it likes; or a lingering socket lies unread in a socket that is closed, ours or a received one.
PacketIo receivePacket(int fd, std::span<std::byte> buffer, std::size_t& length, FileDescriptor& attached,
                       FileDescriptor* second = nullptr);

// Whether the process at the other end runs under our user id.
bool peerIsSameUser(int fd);

}  // namespace gloo_bypass
