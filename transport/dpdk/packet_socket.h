// Unix sockets that keep packet borders (SOCK_SEQPACKET) and carry a file descriptor beside the bytes.
// All are non-blocking and close-on-exec. Errors: Status with the path; I/O ends in PacketIo.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"

namespace gloo_bypass::dpdk {

// Longest path a socket can have here: sun_path is 108 bytes with its terminator.
inline constexpr std::size_t kMaxSocketPathBytes = 107;

enum class PacketIo { kDone, kWouldBlock, kClosed, kExhausted };

// The path appears only once the socket listens, so a refused connect always means a dead owner. Errors: kConfiguration
// (the path's length), kExhausted, kUnavailable; they name the call that failed, not the path.
Result<FileDescriptor> listenPacketSocket(const std::string& path);

enum class ConnectResult { kConnected, kBusy, kExhausted, kRefused, kFailed };
// kBusy: the listener's backlog is full, try again. kExhausted: this process or machine has no descriptor or memory
// left, errno says which. kRefused: nobody listens (any more). kFailed: whoever listens cannot be reached, errno says
// why (a security module forbids it, say).
ConnectResult connectPacketSocket(const std::string& path, FileDescriptor& out);
// Empty when nobody is waiting (errno: EAGAIN), or where it cannot be taken.
FileDescriptor acceptPacketSocket(int listener);

// `attachedFd` -1: none, and then no second. The caller keeps them. kExhausted: too many descriptors are on their way
// already (errno: ETOOMANYREFS).
PacketIo sendPacket(int fd, std::span<const std::byte> packet, int attachedFd = -1, int secondFd = -1);
// Sets `length`; a packet longer than `buffer` ends in kClosed, since no correct peer sends one.
// A second descriptor ends there too where there is no place for one. kExhausted: descriptors came, and this process
// has none left for them; errno says which limit it is. A descriptor that came may be a socket that its sender made
// linger (SO_LINGER). It does not any more, so closing it does not wait. Closing can still wait for a process of the
// same user: where the descriptor is a file of its FUSE file system, which answers flush when it likes, or where a
// socket that lingers lies unread in one that is closed, ours or one that came.
PacketIo receivePacket(int fd, std::span<std::byte> buffer, std::size_t& length, FileDescriptor& attached,
                       FileDescriptor* second = nullptr);

// Whether the process at the other end runs under our user id.
bool peerIsSameUser(int fd);

}  // namespace gloo_bypass::dpdk
