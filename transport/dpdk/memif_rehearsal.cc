#include "transport/dpdk/memif_rehearsal.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <cerrno>
#include <utility>

#include "transport/base/exhausted.h"

namespace gloo_bypass::dpdk {
namespace {

Error cannotShare(ErrorCode code, const std::string& why) {
  return {ErrorScope::kDevice, code, "memory cannot be shared with other processes here: " + why};
}

Error refused(const char* call) {
  const auto [code, text] = failedCall(call);
  return cannotShare(code, text);
}

// The first exchange of the two ends; each then has the other's page.
Status exchangeHellos(const MemifShared& shared, int here, int there) {
  if (!peerIsSameUser(there)) return refused("getsockopt(SO_PEERCRED)");
  if (sendHello(here, {shared.self.portId, shared.self.secret, 0}, shared.page) != PacketIo::kDone) {
    return refused("sendmsg of descriptors");
  }
  MemifHello hello;
  WakePage page;
  errno = 0;
  if (receiveHello(there, hello, page) == PacketIo::kDone) return {};
  return refused("recvmsg and mmap of another process's page");
}

// Memif's handshake, both sides, with real memory.
Status shakeHands(const MemifShared& shared, int here, int there) {
  auto memory = MemifMemory::create(shared.shape(), MemifPages::kWhenTouched);
  if (!memory) return cannotShare(memory.error().code, memory.error().message);
  MemifClientHandshake client({}, *memory.value(), shared.events.get());
  MemifServerHandshake server("", {.shape = shared.shape(), .pages = MemifPages::kWhenTouched});
  for (const MemifClientHandshake::Packet& packet : client.receive(memifHello(""))) {
    MemifMessage message{};
    std::size_t length = 0;
    FileDescriptor attached;
    if (sendPacket(here, packet.message, packet.descriptor) != PacketIo::kDone) return refused("sendmsg");
    if (receivePacket(there, message, length, attached) != PacketIo::kDone) return refused("recvmsg");
    (void)server.receive(message, std::move(attached));
    if (!server.ended().empty()) {
      return cannotShare(server.exhausted() ? ErrorCode::kExhausted : ErrorCode::kUnavailable, server.ended());
    }
  }
  if (!server.connected()) return cannotShare(ErrorCode::kUnavailable, "the handshake of a link does not end");
  return {};
}

// Checks that the port sees events.
Status watch(int epoll, int socket) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event) != 0) return refused("epoll_ctl");
  if (::epoll_wait(epoll, &event, 1, 0) < 0) return refused("epoll_wait");
  return {};
}

}  // namespace

Status rehearseMemifLink(const MemifShared& shared, const std::string& path, int listener) {
  FileDescriptor here;
  if (connectPacketSocket(path, here) != ConnectResult::kConnected) return refused("connect");
  const FileDescriptor there = acceptPacketSocket(listener);
  if (!there) return refused("accept4");
  if (Status status = exchangeHellos(shared, here.get(), there.get()); !status) return status;
  if (Status status = shakeHands(shared, here.get(), there.get()); !status) return status;
  return watch(shared.epoll.get(), there.get());
}

}  // namespace gloo_bypass::dpdk
