#include "transport/dpdk/memif_link.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "transport/base/check.h"
#include "transport/base/doorbell.h"
#include "transport/base/exhausted.h"

namespace gloo_bypass::dpdk {
namespace {

constexpr std::uint32_t kHelloMagic = 0x4742686c;  // "GBhl"
constexpr std::size_t kHelloBytes = 4 + 16 + 16 + 4;
// A packet of one of these bytes is the last on a cross connection: the port, or only this link, closes in good order.
constexpr std::byte kPortCloses{'b'}, kLinkCloses{'c'};
// The other end cannot take the connection, or what comes with it.
constexpr std::byte kNoDescriptors{'d'}, kNoMemory{'m'};
constexpr char kServerName[] = "gloo-bypass";

// Both ends derive the same fictitious addresses, from the range meant for benchmarks (RFC 2544), so that a
// capture of a memory link reads like one of a network.
Ipv4Address addressOf(const PortId& id) {
  return 0xc6120000U | (static_cast<Ipv4Address>(id[0] & 1) << 16) | static_cast<Ipv4Address>(id[1]) << 8 | id[2];
}
MacAddress macOf(const PortId& id) { return {0x02, id[0], id[1], id[2], id[3], id[4]}; }
constexpr std::uint16_t kUdpPort = 47777;

std::string secretOf(const PortId& id) { return toHex(id).substr(0, 23); }  // memif's field: 24 with the terminator

}  // namespace

UdpFlow memifFlow(const MemifAddress& from, const MemifAddress& to) {
  return {.sourceMac = macOf(from.portId),
          .destinationMac = macOf(to.portId),
          .sourceIp = addressOf(from.portId),
          .destinationIp = addressOf(to.portId),
          .sourcePort = kUdpPort,
          .destinationPort = kUdpPort};
}

PacketIo sendHello(int fd, const MemifHello& hello, const WakePage& page) {
  std::array<std::byte, kHelloBytes> packet{};
  writeBe32(&packet[0], kHelloMagic);
  std::memcpy(&packet[4], hello.senderId.data(), 16);
  std::memcpy(&packet[20], hello.targetSecret.data(), 16);
  writeBe32(&packet[36], hello.interfaceId);
  return sendPacket(fd, packet, page.fd(), page.doorbell());
}

void sayNoDescriptors(int fd) { (void)sendPacket(fd, std::span(&kNoDescriptors, 1)); }

PacketIo receiveHello(int fd, MemifHello& hello, WakePage& page) {
  std::array<std::byte, kHelloBytes> packet{};
  std::size_t length = 0;
  FileDescriptor pageFd, doorbell;
  const PacketIo io = receivePacket(fd, packet, length, pageFd, &doorbell);
  if (io != PacketIo::kDone) return io;
  if (length == 1) hello.lastWord = packet[0];
  if (length != kHelloBytes || readBe32(&packet[0]) != kHelloMagic) return PacketIo::kClosed;
  std::memcpy(hello.senderId.data(), &packet[4], 16);
  std::memcpy(hello.targetSecret.data(), &packet[20], 16);
  hello.interfaceId = readBe32(&packet[36]);
  auto mapped = WakePage::map(pageFd);
  if (!mapped || (doorbell && !Doorbell::isOne(doorbell.get()))) return PacketIo::kClosed;
  page = std::move(mapped).value();
  page.setDoorbell(std::move(doorbell));
  return PacketIo::kDone;
}

MemifLink::MemifLink(MemifShared& shared, LinkId id, MemifAddress peer, MemifPages pages)
    : shared_(shared),
      id_(id),
      peer_(std::move(peer)),
      pages_(pages),
      state_(role() == MemifRole::kClient ? State::kLocating : State::kAwaiting) {
  headers_ = FrameTemplate(memifFlow(shared.self, peer_));
}

MemifLink::~MemifLink() {
  if (cross_) (void)sendPacket(cross_.get(), std::span(&kPortCloses, 1));
}

void MemifLink::leave() {
  if (cross_) (void)sendPacket(cross_.get(), std::span(&kLinkCloses, 1));
  cross_.reset();
}

void MemifLink::service() {
  switch (state_) {
    case State::kLocating:
      locate();
      break;
    case State::kGreeting:
      greet();
      break;
    case State::kAttaching:
    case State::kUp:
      hear();
      break;
    case State::kAwaiting:
    case State::kDraining:
    case State::kDown:
      break;
  }
}

void MemifLink::locate() {
  const std::string path = shared_.self.directory + "/" + toHex(peer_.portId) + ".sock";
  switch (connectPacketSocket(path, cross_)) {
    case ConnectResult::kBusy:
      return;
    case ConnectResult::kExhausted:
      return fail(ErrorCode::kExhausted, exhausted(errno));
    case ConnectResult::kRefused:
      return fail(ErrorCode::kPeerVanished, fmt::format("nobody listens on its socket '{}'", path));
    case ConnectResult::kFailed:
      return fail(ErrorCode::kUnavailable,
                  fmt::format("cannot connect to its socket '{}': {}", path, std::strerror(errno)));
    case ConnectResult::kConnected:
      break;
  }
  if (!peerIsSameUser(cross_.get())) {
    return fail(ErrorCode::kPeerViolatedProtocol, fmt::format("socket '{}' belongs to another user", path));
  }
  const MemifHello hello{shared_.self.portId, peer_.secret, 0};
  const PacketIo sent = watchCross() ? sendHello(cross_.get(), hello, shared_.page) : PacketIo::kClosed;
  if (sent == PacketIo::kExhausted) return cross_.reset();  // until others have taken what is on its way to them
  if (sent != PacketIo::kDone) return peerGone();
  state_ = State::kGreeting;
  greet();
}

void MemifLink::greet() {
  MemifHello hello;
  const PacketIo io = receiveHello(cross_.get(), hello, peerPage_);
  if (io == PacketIo::kWouldBlock) return;
  if (io == PacketIo::kExhausted) return failExhausted();
  if (io == PacketIo::kClosed) return peerGone(hello.lastWord);
  if (hello.senderId != peer_.portId || hello.targetSecret != shared_.self.secret) {
    return fail(ErrorCode::kPeerViolatedProtocol, "another process answers in its name");
  }
  auto memory = MemifMemory::create(shared_.shape(), pages_);
  if (!memory) {
    (void)sendPacket(cross_.get(), std::span(&kNoMemory, 1));
    return fail(memory.error().code, memory.error().message);
  }
  memory_ = std::move(memory).value();
  asClient_.emplace(MemifClientHandshake::Server{hello.interfaceId, secretOf(peer_.secret)}, *memory_,
                    shared_.events.get());
  state_ = State::kAttaching;
  hear();
}

void MemifLink::adopt(FileDescriptor cross, WakePage peerPage) {
  GLOO_BYPASS_CHECK(state_ == State::kAwaiting);
  cross_ = std::move(cross);
  peerPage_ = std::move(peerPage);
  const MemifHello hello{shared_.self.portId, peer_.secret, id_};
  const PacketIo sent = watchCross() ? sendHello(cross_.get(), hello, shared_.page) : PacketIo::kClosed;
  if (sent == PacketIo::kExhausted) return failExhausted();
  if (sent != PacketIo::kDone || sendPacket(cross_.get(), memifHello(kServerName)) != PacketIo::kDone)
    return peerGone();
  asServer_.emplace(kServerName, MemifServerHandshake::Accepted{.shape = shared_.shape(), .pages = pages_});
  state_ = State::kAttaching;
  hear();
}

// The socket is edge-triggered: read until it is empty or the link has ended.
void MemifLink::hear() {
  while (state_ == State::kAttaching || state_ == State::kUp) {
    MemifMessage message{};
    std::size_t length = 0;
    FileDescriptor attached;
    const PacketIo io = receivePacket(cross_.get(), message, length, attached);
    if (io == PacketIo::kWouldBlock) return;
    if (io == PacketIo::kExhausted) return failExhausted();
    // After the handshake anything more ends the link.
    if (io == PacketIo::kClosed || length != message.size() || state_ == State::kUp) {
      return peerGone(io == PacketIo::kDone && length == 1 ? message[0] : std::byte{});
    }
    if (++messagesHeard_ > kMaxMemifMessages) {
      return fail(ErrorCode::kPeerViolatedProtocol, "its handshake does not end");
    }
    if (asClient_) {
      answerServer(message);
    } else {
      answerClient(message, std::move(attached));
    }
  }
}

void MemifLink::answerServer(const MemifMessage& message) {
  // The socket holds more than a whole handshake: if it is full, the peer does not read any more.
  for (const MemifClientHandshake::Packet& packet : asClient_->receive(message)) {
    const PacketIo sent = sendPacket(cross_.get(), packet.message, packet.descriptor);
    if (sent == PacketIo::kExhausted) return failExhausted();
    if (sent != PacketIo::kDone) return peerGone();
  }
  if (!asClient_->ended().empty()) return fail(ErrorCode::kPeerViolatedProtocol, asClient_->ended());
  if (asClient_->connected()) establish();
}

void MemifLink::answerClient(const MemifMessage& message, FileDescriptor attached) {
  const auto answer = asServer_->receive(message, std::move(attached));
  if (answer && sendPacket(cross_.get(), *answer) != PacketIo::kDone) return peerGone();
  if (!asServer_->ended().empty()) {
    return fail(asServer_->exhausted() ? ErrorCode::kExhausted : ErrorCode::kPeerViolatedProtocol, asServer_->ended());
  }
  if (!asServer_->connected()) return;
  memory_ = asServer_->takeMemory();
  establish();
}

void MemifLink::establish() {
  rings_.emplace(*memory_, role());
  if (!rings_->toSend.start() || !rings_->received.start())
    return fail(ErrorCode::kInternal, "the handshake describes no ring");
  memory_->closeDescriptor();
  asClient_.reset();
  asServer_.reset();
  state_ = State::kUp;
}

// An accepted connection is watched from the start.
bool MemifLink::watchCross() {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  return ::epoll_ctl(shared_.epoll.get(), EPOLL_CTL_ADD, cross_.get(), &event) == 0 || errno == EEXIST;
}

// The kernel reports a connection reset once, before the data that had arrived.
std::byte MemifLink::hearLastWord() {
  std::array<std::byte, kMemifMessageBytes> packet;
  int closed = 0;
  for (int i = 0; i < kMaxMemifMessages && closed < 2; ++i) {
    std::size_t length = 0;
    FileDescriptor attached;
    const PacketIo io = receivePacket(cross_.get(), packet, length, attached);
    if (io == PacketIo::kDone && length == 1) return packet[0];
    if (io != PacketIo::kDone) ++closed;
  }
  return {};
}

void MemifLink::peerGone(std::byte lastWord) {
  const bool wasUp = state_ == State::kUp;
  if (lastWord == std::byte{}) lastWord = hearLastWord();
  if (lastWord == kLinkCloses) {
    fail(ErrorCode::kPeerClosed, "it closed the link");
  } else if (lastWord == kNoDescriptors) {
    fail(ErrorCode::kExhausted, "it has no descriptor left for this link: raise its limit (ulimit -n)");
  } else if (lastWord == kNoMemory) {
    fail(ErrorCode::kExhausted, "it has no memory left for this link: raise its limit (ulimit -v)");
  } else {
    fail(ErrorCode::kPeerVanished, lastWord == kPortCloses ? "it closed its port" : "it ended, or was killed");
  }
  if (wasUp) state_ = State::kDraining;
}

void MemifLink::fail(ErrorCode code, std::string message) {
  error_ = Error{ErrorScope::kSession, code, fmt::format("memif link to process {}: {}", peer_.pid, message)};
  cross_.reset();
  state_ = State::kDown;
}

void MemifLink::failExhausted() {
  const std::string why = exhausted(errno);
  sayNoDescriptors(cross_.get());
  fail(ErrorCode::kExhausted, why);
}

void MemifLink::ringBroken() { fail(ErrorCode::kPeerViolatedProtocol, "it wrote nonsense into the shared memory"); }

void MemifLink::finishDraining() {
  GLOO_BYPASS_CHECK(state_ == State::kDraining);
  state_ = State::kDown;
}

}  // namespace gloo_bypass::dpdk
