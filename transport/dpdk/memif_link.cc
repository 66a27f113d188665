#include "transport/dpdk/memif_link.h"

#include <fmt/format.h>
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
constexpr std::byte kGoodbye{'b'};  // a packet of this one byte: the port is being closed in good order
// The handshake takes about ten packets each way; a peer that sends more at once waits for the next round.
constexpr int kRelayRound = 32;

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
  if (cross_) (void)sendPacket(cross_.get(), std::span(&kGoodbye, 1));
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
    return peerGone(false);
  }
  state_ = State::kGreeting;
  greet();
}

void MemifLink::greet() {
  MemifHello hello;
  const PacketIo io = receiveHello(cross_.get(), hello, peerPage_);
  if (io == PacketIo::kWouldBlock) return;
  if (io == PacketIo::kClosed) return peerGone(false);
  if (hello.senderId != peer_.portId || hello.targetSecret != shared_.self.secret) {
    return fail(ErrorCode::kPeerViolatedProtocol, "another process answers in its name");
  }
  deviceId_ = hello.deviceId;
  attach();
}

void MemifLink::adopt(FileDescriptor cross, WakePage peerPage) {
  GLOO_BYPASS_CHECK(state_ == State::kAwaiting);
  cross_ = std::move(cross);
  peerPage_ = std::move(peerPage);
  deviceId_ = id_;
  const MemifHello hello{shared_.self.portId, peer_.secret, deviceId_};
  if (!watch(cross_.get()) || sendHello(cross_.get(), hello, shared_.page) != PacketIo::kDone) {
    return peerGone(false);
  }
  attach();
}

Result<std::unique_ptr<EthernetDevice>> MemifLink::makeDevice(const std::string& role, const std::string& socketPath) {
  EthernetDeviceOptions options;
  options.name = uniqueDeviceName();
  options.vdevArguments =
      fmt::format("role={},id={},socket={},socket-abstract=no,bsize={},rsize={},secret={}", role, deviceId_, socketPath,
                  shared_.self.bufferBytes, shared_.self.log2Slots,
                  secretOf(role == "server" ? shared_.self.secret : peer_.secret));
  options.receivePool = shared_.receivePool.get();
  return EthernetDevice::create(options);
}

void MemifLink::attach() {
  state_ = State::kAttaching;
  if (role() == MemifRole::kClient) {
    // The driver connects when it starts: to a listener of ours that lives just that long.
    const std::string path = fmt::format("{}.c{}", shared_.base, id_);
    auto listener = listenPacketSocket(path);
    if (!listener) return fail(listener.error().code, listener.error().message);
    auto device = makeDevice("client", path);
    ::unlink(path.c_str());
    if (!device) return fail(device.error().code, device.error().message);
    device_ = std::move(device).value();
    local_ = acceptPacketSocket(listener.value().get());
    if (!local_ || !watch(local_.get())) return fail(ErrorCode::kInternal, "our own driver did not connect");
  } else {
    auto device = makeDevice("server", shared_.base + ".drv");
    if (!device) return fail(device.error().code, device.error().message);
    device_ = std::move(device).value();
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
  if (!device_->linkUp()) return;
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
    if (io == PacketIo::kClosed || length != kMemifMessageBytes) {
      if (fromPeer) {
        peerGone(io == PacketIo::kDone && length == 1 && packet[0] == kGoodbye);
      } else {
        fail(ErrorCode::kUnavailable, "our own driver ended the handshake" + Eal::lastErrorSuffix());
      }
      return false;
    }
    if (fromPeer == (role() == MemifRole::kServer) && !memory_.overhear(packet, attached.get())) {
      fail(fromPeer ? ErrorCode::kPeerViolatedProtocol : ErrorCode::kInternal, "the drivers do not agree on their memory");
      return false;
    }
    // Both sockets hold more than the whole handshake: full means that nobody reads any more.
    if (sendPacket(to, packet, attached.get()) != PacketIo::kDone) {
      if (fromPeer) {
        fail(ErrorCode::kUnavailable, "our own driver ended the handshake" + Eal::lastErrorSuffix());
      } else {
        peerGone(false);
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
  peerGone(io == PacketIo::kDone && length == 1 && packet[0] == kGoodbye);
}

bool MemifLink::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  // An accepted connection has been watched since it came.
  return ::epoll_ctl(shared_.epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST;
}

void MemifLink::peerGone(bool saidGoodbye) {
  const bool wasUp = state_ == State::kUp;
  fail(ErrorCode::kPeerVanished, saidGoodbye ? "it closed its port" : "it ended, or was killed");
  if (wasUp) state_ = State::kDraining;
}

void MemifLink::fail(ErrorCode code, std::string message) {
  error_ = Error{ErrorScope::kSession, code, fmt::format("memif link to process {}: {}", peer_.pid, message)};
  cross_.reset();
  if (state_ != State::kUp) {
    device_.reset();
    local_.reset();
  }
  state_ = State::kDown;
}

void MemifLink::ringBroken() {
  fail(ErrorCode::kPeerViolatedProtocol, "it wrote nonsense into the shared memory");
  device_.reset();
  local_.reset();
}

void MemifLink::finishDraining() {
  GLOO_BYPASS_CHECK(state_ == State::kDraining);
  device_.reset();
  local_.reset();
  state_ = State::kDown;
}

}  // namespace gloo_bypass::dpdk
