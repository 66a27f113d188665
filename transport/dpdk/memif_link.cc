#include "transport/dpdk/memif_link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "transport/base/check.h"
#include "transport/dpdk/eal.h"

namespace gloo_bypass::dpdk {
namespace {

constexpr std::uint32_t kHelloMagic = 0x4742686c;  // "GBhl"
constexpr std::size_t kHelloBytes = 4 + 16 + 16 + 4;
// A packet of one of these bytes is the last on a cross connection: the port, or only this link, is closed in good
// order.
constexpr std::byte kPortCloses{'b'}, kLinkCloses{'c'};
// The handshake takes about ten packets each way; a peer that sends more at once waits for the next round.
constexpr int kRelayRound = 32;
// Its interrupt thread takes microseconds, unless it is kept from running.
constexpr int kDriverGreetsMs = 1000;

// Both ends derive the same fictitious addresses, from the range meant for benchmarks (RFC 2544), so that a
// capture of a memory link reads like one of a network.
Ipv4Address addressOf(const PortId& id) {
  return 0xc6120000U | (static_cast<Ipv4Address>(id[0] & 1) << 16) | static_cast<Ipv4Address>(id[1]) << 8 | id[2];
}
MacAddress macOf(const PortId& id) { return {0x02, id[0], id[1], id[2], id[3], id[4]}; }
constexpr std::uint16_t kUdpPort = 47777;

std::string uniqueDeviceName() {
  static std::atomic<unsigned> counter{0};
  return fmt::format("net_memif_gb{}", counter.fetch_add(1));
}

std::string secretOf(const PortId& id) { return toHex(id).substr(0, 23); }  // the driver's field: 24 with the terminator

}  // namespace

UdpFlow memifFlow(const MemifAddress& from, const MemifAddress& to) {
  UdpFlow flow;
  flow.sourceMac = macOf(from.portId);
  flow.destinationMac = macOf(to.portId);
  flow.sourceIp = addressOf(from.portId);
  flow.destinationIp = addressOf(to.portId);
  flow.sourcePort = flow.destinationPort = kUdpPort;
  return flow;
}

PacketIo sendHello(int fd, const MemifHello& hello, const WakePage& page) {
  std::array<std::byte, kHelloBytes> packet{};
  writeBe32(&packet[0], kHelloMagic);
  std::memcpy(&packet[4], hello.senderId.data(), 16);
  std::memcpy(&packet[20], hello.targetSecret.data(), 16);
  writeBe32(&packet[36], hello.deviceId);
  return sendPacket(fd, packet, page.fd(), page.event());
}

PacketIo receiveHello(int fd, MemifHello& hello, WakePage& page) {
  std::array<std::byte, kHelloBytes> packet{};
  std::size_t length = 0;
  FileDescriptor pageFd, event;
  const PacketIo io = receivePacket(fd, packet, length, pageFd, &event);
  if (io != PacketIo::kDone) return io;
  if (length != kHelloBytes || readBe32(&packet[0]) != kHelloMagic) return PacketIo::kClosed;
  std::memcpy(hello.senderId.data(), &packet[4], 16);
  std::memcpy(hello.targetSecret.data(), &packet[20], 16);
  hello.deviceId = readBe32(&packet[36]);
  auto mapped = WakePage::map(std::move(pageFd));
  if (!mapped || !mapped.value().setEvent(std::move(event))) return PacketIo::kClosed;
  page = std::move(mapped).value();
  return PacketIo::kDone;
}

MemifLink::MemifLink(MemifShared& shared, LinkId id, MemifAddress peer)
    : shared_(shared),
      id_(id),
      peer_(std::move(peer)),
      state_(role() == MemifRole::kClient ? State::kLocating : State::kAwaiting),
      memory_({.bufferBytes = shared.self.bufferBytes, .log2Slots = shared.self.log2Slots}),
      received_(memory_, role()),
      toSend_(memory_, role()) {
  headers_ = FrameTemplate(memifFlow(shared.self, peer_));
}

MemifLink::~MemifLink() {
  if (cross_) (void)sendPacket(cross_.get(), std::span(&kPortCloses, 1));
  releaseDevice();
}

// A server's driver greets whoever connects. If the connection ends before that, it closes its descriptor while EAL's
// interrupt thread still watches it, and the EAL ends the process.
void MemifLink::awaitDriver() {
  if (role() != MemifRole::kServer || !local_ || driverSpoke_) return;
  pollfd greeting{local_.get(), POLLIN, 0};
  (void)::poll(&greeting, 1, kDriverGreetsMs);
}

void MemifLink::releaseDevice() {
  awaitDriver();
  if (own_.device && own_.device->stop()) shared_.sparesOf(role()).push_back(std::move(own_));
  own_.device.reset();
  local_.reset();
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
      relay();
      break;
    case State::kUp:
      watchCross();
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
    case ConnectResult::kRefused:
      return fail(ErrorCode::kPeerVanished, fmt::format("nobody listens on its socket '{}'", path));
    case ConnectResult::kConnected:
      break;
  }
  if (!peerIsSameUser(cross_.get())) {
    return fail(ErrorCode::kPeerViolatedProtocol, fmt::format("socket '{}' belongs to another user", path));
  }
  const MemifHello hello{shared_.self.portId, peer_.secret, 0};
  if (!watch(cross_.get()) || sendHello(cross_.get(), hello, shared_.page) != PacketIo::kDone) {
    return peerGone();
  }
  state_ = State::kGreeting;
  greet();
}

void MemifLink::greet() {
  MemifHello hello;
  const PacketIo io = receiveHello(cross_.get(), hello, peerPage_);
  if (io == PacketIo::kWouldBlock) return;
  if (io == PacketIo::kClosed) return peerGone();
  if (hello.senderId != peer_.portId || hello.targetSecret != shared_.self.secret) {
    return fail(ErrorCode::kPeerViolatedProtocol, "another process answers in its name");
  }
  interfaceId_ = hello.deviceId;
  chooseDevice();
  attach();
}

void MemifLink::adopt(FileDescriptor cross, WakePage peerPage) {
  GLOO_BYPASS_CHECK(state_ == State::kAwaiting);
  cross_ = std::move(cross);
  peerPage_ = std::move(peerPage);
  chooseDevice();
  interfaceId_ = own_.number;
  const MemifHello hello{shared_.self.portId, peer_.secret, interfaceId_};
  if (!watch(cross_.get()) || sendHello(cross_.get(), hello, shared_.page) != PacketIo::kDone) {
    return peerGone();
  }
  attach();
}

void MemifLink::chooseDevice() {
  std::vector<MemifDevice>& spares = shared_.sparesOf(role());
  if (spares.empty()) {
    own_.number = id_;
  } else {
    own_ = std::move(spares.back());
    spares.pop_back();
  }
}

Status MemifLink::startDevice(const std::string& socketPath) {
  if (own_.device) {
    const Status started = own_.device->start();
    if (!started) own_.device.reset();
    return started;
  }
  const bool isServer = role() == MemifRole::kServer;
  EthernetDeviceOptions options;
  options.name = uniqueDeviceName();
  // A client's interface and secret are the peer's, and another peer's later: the relay fills them in.
  options.vdevArguments =
      fmt::format("role={},id={},socket={},socket-abstract=no,bsize={},rsize={}{}", isServer ? "server" : "client",
                  isServer ? own_.number : 0, socketPath, shared_.self.bufferBytes, shared_.self.log2Slots,
                  isServer ? ",secret=" + secretOf(shared_.self.secret) : "");
  options.receivePool = shared_.receivePool.get();
  auto made = EthernetDevice::create(options);
  std::vector<MemifDevice>& others = shared_.sparesOf(isServer ? MemifRole::kClient : MemifRole::kServer);
  if (!made && made.error().code == ErrorCode::kExhausted && !others.empty()) {
    others.pop_back();
    made = EthernetDevice::create(options);
  }
  if (!made) return made.error();
  own_.device = std::move(made).value();
  return {};
}

void MemifLink::attach() {
  state_ = State::kAttaching;
  if (role() == MemifRole::kClient) {
    // The driver connects when it starts: to a listener of ours that lives just that long.
    const std::string path = fmt::format("{}.c{}", shared_.base, own_.number);
    auto listener = listenPacketSocket(path);
    if (!listener) return fail(listener.error().code, listener.error().message);
    const Status started = startDevice(path);
    ::unlink(path.c_str());
    if (!started) return fail(started.error().code, started.error().message);
    local_ = acceptPacketSocket(listener.value().get());
    if (!local_ || !watch(local_.get())) return fail(ErrorCode::kInternal, "our own driver did not connect");
  } else {
    const Status started = startDevice(shared_.base + ".drv");
    if (!started) return fail(started.error().code, started.error().message);
  }
  relay();
}

void MemifLink::connectServerEnd() {
  switch (connectPacketSocket(shared_.base + ".drv", local_)) {
    case ConnectResult::kBusy:  // the driver's backlog is one: next tick
      return;
    case ConnectResult::kRefused:
      return fail(ErrorCode::kInternal, "our own driver does not listen");
    case ConnectResult::kConnected:
      if (!watch(local_.get())) fail(ErrorCode::kExhausted, "no more sockets can be watched");
  }
}

void MemifLink::relay() {
  if (!local_) connectServerEnd();
  if (state_ != State::kAttaching || !local_) return;
  if (!pump(local_.get(), cross_.get()) || !pump(cross_.get(), local_.get())) return;  // failed, and said why
  if (!own_.device->linkUp()) return;
  if (!toSend_.start() || !received_.start()) return fail(ErrorCode::kInternal, "the drivers' handshake describes no ring");
  state_ = State::kUp;
}

bool MemifLink::pump(int from, int to) {
  std::array<std::byte, kMemifMessageBytes> packet;
  for (int i = 0; i < kRelayRound; ++i) {
    std::size_t length = 0;
    FileDescriptor attached;
    const PacketIo io = receivePacket(from, packet, length, attached);
    if (io == PacketIo::kWouldBlock) return true;
    const bool fromPeer = from == cross_.get();
    driverSpoke_ = driverSpoke_ || !fromPeer;
    if (io == PacketIo::kClosed || length != kMemifMessageBytes) {
      if (fromPeer) {
        peerGone(io == PacketIo::kDone && length == 1 ? packet[0] : std::byte{});
      } else {
        fail(ErrorCode::kUnavailable, "our own driver ended the handshake" + Eal::lastErrorSuffix());
      }
      return false;
    }
    if (fromPeer == (role() == MemifRole::kServer) && !memory_.overhear(packet, attached.get())) {
      fail(fromPeer ? ErrorCode::kPeerViolatedProtocol : ErrorCode::kInternal, "the drivers do not agree on their memory");
      return false;
    }
    if (!fromPeer && role() == MemifRole::kClient) {
      nameMemifServer(packet, interfaceId_, secretOf(peer_.secret));
    }
    // Both sockets hold more than the whole handshake: full means that nobody reads any more.
    if (sendPacket(to, packet, attached.get()) != PacketIo::kDone) {
      if (fromPeer) {
        fail(ErrorCode::kUnavailable, "our own driver ended the handshake" + Eal::lastErrorSuffix());
      } else {
        peerGone();
      }
      return false;
    }
  }
  return true;
}

void MemifLink::watchCross() {
  // The server's driver is up before its last word has been relayed.
  if (!pump(local_.get(), cross_.get())) return;
  std::array<std::byte, kMemifMessageBytes> packet;
  std::size_t length = 0;
  FileDescriptor attached;
  const PacketIo io = receivePacket(cross_.get(), packet, length, attached);
  if (io == PacketIo::kWouldBlock) return;
  // The handshake is over: whatever comes now, the link ends.
  peerGone(io == PacketIo::kDone && length == 1 ? packet[0] : std::byte{});
}

bool MemifLink::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  // An accepted connection has been watched since it came.
  return ::epoll_ctl(shared_.epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST;
}

// The kernel tells that a connection was reset once, before what had come on it.
std::byte MemifLink::hearLastWord() {
  std::array<std::byte, kMemifMessageBytes> packet;
  int closed = 0;
  for (int i = 0; i < kRelayRound && closed < 2; ++i) {
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
  } else {
    fail(ErrorCode::kPeerVanished, lastWord == kPortCloses ? "it closed its port" : "it ended, or was killed");
  }
  if (wasUp) state_ = State::kDraining;
}

void MemifLink::fail(ErrorCode code, std::string message) {
  error_ = Error{ErrorScope::kSession, code, fmt::format("memif link to process {}: {}", peer_.pid, message)};
  cross_.reset();
  if (state_ != State::kUp) releaseDevice();
  state_ = State::kDown;
}

void MemifLink::ringBroken() {
  fail(ErrorCode::kPeerViolatedProtocol, "it wrote nonsense into the shared memory");
  releaseDevice();
}

void MemifLink::finishDraining() {
  GLOO_BYPASS_CHECK(state_ == State::kDraining);
  releaseDevice();
  state_ = State::kDown;
}

}  // namespace gloo_bypass::dpdk
