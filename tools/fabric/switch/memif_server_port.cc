#include "tools/fabric/switch/memif_server_port.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tools/common/error.h"
#include "transport/base/packet_socket.h"
#include "transport/dpdk/frame.h"

namespace gloo_bypass::fabric {
namespace {

// A handshake is eight messages; whoever sends more at once waits for the next round.
constexpr int kMessagesARound = 16;
constexpr char kName[] = "gloo-bypass fabric";

Error socketError(const std::string& path, const std::string& what) {
  return Error{ErrorScope::kDevice, ErrorCode::kUnavailable, fmt::format("memif socket '{}': {}", path, what)};
}

// A socket that nobody listens at any more is a dead process's.
Status checkFree(const std::string& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return {};
    return socketError(path, std::strerror(errno));
  }
  if (!S_ISSOCK(status.st_mode))
    return socketError(path, "there is a file of this name, which is no socket; remove it, or choose another path");
  FileDescriptor probe;
  if (connectPacketSocket(path, probe) != ConnectResult::kRefused) {
    return socketError(path, "another process listens there; end it, or choose another path");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<MemifServerPort>> MemifServerPort::create(const std::string& path, std::size_t longestFrame,
                                                                 int epoll) {
  if (const Status free = checkFree(path); !free) return free.error();
  auto listener = listenPacketSocket(path);
  if (!listener) return socketError(path, listener.error().message);
  std::unique_ptr<MemifServerPort> port(new MemifServerPort(path, longestFrame, epoll));
  port->listener_ = std::move(listener).value();
  if (!watch(epoll, port->listener_.get(), EPOLLIN)) return socketError(path, std::strerror(errno));
  return port;
}

MemifServerPort::~MemifServerPort() {
  if (client_) closeClient("the fabric ends");
  if (listener_) ::unlink(path_.c_str());
}

void MemifServerPort::service() {
  acceptClients();
  if (client_ && !hungUp_) hearClient();
}

void MemifServerPort::acceptClients() {
  for (;;) {
    FileDescriptor arrived = acceptPacketSocket(listener_.get());
    if (!arrived) return;
    if (client_ && hungUp_) closeClient("");  // its successor counts for more than what is left in its ring
    if (client_) {
      (void)sendPacket(arrived.get(), dpdk::memifDisconnect("another client is connected to this socket"));
      continue;
    }
    if (!watch(epoll_, arrived.get(), EPOLLIN) || sendPacket(arrived.get(), dpdk::memifHello(kName)) != PacketIo::kDone)
      continue;
    client_ = std::move(arrived);
    handshake_.emplace(kName, dpdk::MemifServerHandshake::Accepted{.longestFrame = longestFrame_, .shape = {}});
  }
}

void MemifServerPort::hearClient() {
  for (int i = 0; i < kMessagesARound; ++i) {
    dpdk::MemifMessage message{};
    std::size_t length = 0;
    FileDescriptor attached;
    const PacketIo io = receivePacket(client_.get(), message, length, attached);
    if (io == PacketIo::kWouldBlock) return;
    const bool wasConnected = handshake_->connected();
    if (io == PacketIo::kDone && length == message.size()) {
      const auto answer = handshake_->receive(message, std::move(attached));
      if (answer && sendPacket(client_.get(), *answer) == PacketIo::kDone && handshake_->ended().empty()) {
        if (!wasConnected && handshake_->connected()) establish();
        if (client_) continue;
        return;
      }
      if (!answer && handshake_->ended().empty()) continue;  // an acknowledgement
    }
    if (!wasConnected) {
      complain("fabric", fmt::format("{}: a client was refused: {}", describe(),
                                     handshake_->ended().empty() ? "it broke off" : handshake_->ended()));
      return closeClient("");
    }
    // Its socket would end every sleep from now on.
    (void)::epoll_ctl(epoll_, EPOLL_CTL_DEL, client_.get(), nullptr);
    hungUp_ = true;
    return;
  }
}

void MemifServerPort::establish() {
  link_.emplace(handshake_->takeMemory());
  link_->events = handshake_->takeEvents();
  // Edge-triggered: the counter need not be read. A client's descriptor that cannot be waited for is none of a
  // driver's.
  if (!link_->received.start() || !link_->toSend.start() || !watch(epoll_, link_->events.get(), EPOLLIN | EPOLLET)) {
    complain("fabric", fmt::format("{}: a client was refused: its event descriptor cannot be waited for", describe()));
    return closeClient("the event descriptor cannot be waited for");
  }
  link_->received.askForEvents(wakeWanted_);
}

void MemifServerPort::closeClient(const std::string& reason) {
  if (!reason.empty() && !hungUp_) (void)sendPacket(client_.get(), dpdk::memifDisconnect(reason));
  // Closing a descriptor does not take it out of the set while the client has the same file open.
  if (link_ && link_->events) (void)::epoll_ctl(epoll_, EPOLL_CTL_DEL, link_->events.get(), nullptr);
  link_.reset();
  handshake_.reset();
  client_.reset();
  hungUp_ = false;
}

void MemifServerPort::closeForBrokenRing() {
  complain("fabric", fmt::format("{}: the client's ring is broken; disconnected", describe()));
  closeClient("the ring is broken");
}

std::size_t MemifServerPort::receive(FrameSink& sink, std::size_t maxFrames) {
  if (!link_) return 0;
  const auto waiting = link_->received.waiting();
  if (!waiting) {
    closeForBrokenRing();
    return 0;
  }
  const std::size_t count = std::min(*waiting, maxFrames);
  for (std::size_t i = 0; i < count; ++i) take(link_->received.frame(i), sink);
  if (count > 0) link_->received.release(count);
  if (hungUp_ && count == *waiting) closeClient("");
  return count;
}

std::size_t MemifServerPort::transmit(std::span<Frame* const> frames) {
  if (!link_ || hungUp_) return 0;
  const auto room = link_->toSend.room();
  if (!room) {
    closeForBrokenRing();
    return 0;
  }
  const std::size_t count = std::min(*room, frames.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::span<std::byte> slot = link_->toSend.slot();
    const std::span<const std::byte> bytes = frames[i]->bytes();
    // A slot outside the memory swallows the frame: the client has described it so.
    const std::size_t length = slot.empty() ? 0 : bytes.size();
    if (length > 0) std::memcpy(slot.data(), bytes.data(), length);
    link_->toSend.push(length);
    ++counters_.framesOut;
    counters_.bytesOut += length;
  }
  if (count > 0) link_->toSend.publish();
  return count;
}

void MemifServerPort::wakeOnFrames(bool wanted) {
  wakeWanted_ = wanted;
  if (link_) link_->received.askForEvents(wanted);
}

}  // namespace gloo_bypass::fabric
