#include "transport/dpdk/memif_port.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "transport/base/check.h"
#include "transport/base/exhausted.h"
#include "transport/base/printable.h"
#include "transport/base/signals_blocked.h"
#include "transport/dpdk/memif_directory.h"
#include "transport/dpdk/memif_rehearsal.h"

namespace gloo_bypass::dpdk {
namespace {

constexpr LinkId kFirstLink = 1;
// The peer may begin to copy out a frame this long while we go on; small frames are published together.
constexpr std::size_t kPublishBytes = 16 * 1024;
// A port links to at most this many ranks of its machine at a time. Each link takes a socket and the memory of two
// rings: 7.5 MiB with the default sizes, 32 MiB at most.
constexpr std::size_t kMaxLinks = 1024;
// The first links allocate all their memory in advance: as many as a ring or a tree of ranks uses. A process with more
// peers exchanges little with most of them.
constexpr std::size_t kLinksWithPages = 8;
// Connections of peers without a link here yet; further ones are refused and end there as "peer gone".
constexpr std::size_t kMaxStrangers = kMaxLinks;
// A peer sends its hello right after it connects. At most this many connections may be silent, few enough for a process
// with few descriptors; a new one replaces the oldest, unless that came just now. Others wait in the listener's
// backlog.
constexpr std::ptrdiff_t kMaxSilent = 16;
constexpr Duration kLeastSilence = std::chrono::milliseconds(250), kLongestSilence = std::chrono::seconds(10);
constexpr Duration kSilencePollInterval = std::chrono::milliseconds(50);
// A peer raises no event when its full backlog has room again.
constexpr Duration kSetUpPollInterval = std::chrono::milliseconds(1);

Status fillRandom(PortId& id) {
  if (::getrandom(id.data(), id.size(), 0) == static_cast<ssize_t>(id.size())) return {};
  return Status(ErrorScope::kDevice, ErrorCode::kUnavailable,
                fmt::format("the kernel gives no random bytes (getrandom: {})", std::strerror(errno)));
}

bool addToEpoll(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  return ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

Error refused(const char* call) {
  const auto [code, text] = failedCall(call);
  return {ErrorScope::kDevice, code, fmt::format("a port of memory links cannot be made ({})", text)};
}

Result<FileDescriptor> listenIn(const TransportConfig& config, const MemifShared& shared, const char* suffix) {
  auto listener = listenPacketSocket(shared.base + suffix);
  if (listener || listener.error().code == ErrorCode::kExhausted) return listener;
  return unusableMemifDirectory(config, shared.self.directory,
                                fmt::format("takes no socket ({})", listener.error().message));
}

// Uses a socket of its own: other ranks know the path of the port's real one, and check whether it lives.
Status rehearse(const TransportConfig& config, const MemifShared& shared) {
  constexpr const char* kSuffix = ".try";
  const auto listener = listenIn(config, shared, kSuffix);
  if (!listener) return listener.error();
  const std::string path = shared.base + kSuffix;
  Status tried = rehearseMemifLink(shared, path, listener.value().get());
  ::unlink(path.c_str());
  return tried;
}

}  // namespace

Result<std::unique_ptr<PacketPort>> makeMemifPort(const TransportConfig& config, int doorbell) {
  auto directory = prepareMemifDirectory(config);
  if (!directory) return directory.error();
  auto shared = std::make_unique<MemifShared>();
  shared->self.machineId = machineId();
  if (config.link == LinkMode::kAuto && shared->self.machineId == PortId{}) {
    return Error{ErrorScope::kDevice, ErrorCode::kUnavailable,
                 "/proc/sys/kernel/random/boot_id cannot be read, by which the processes of one host know each other"};
  }
  for (PortId* id : {&shared->self.portId, &shared->self.secret}) {
    const Status filled = fillRandom(*id);
    if (!filled) return filled.error();
  }
  endWithMachine(shared->self.portId);
  shared->self.pid = static_cast<std::uint32_t>(::getpid());
  shared->self.bufferBytes = static_cast<std::uint16_t>(config.memifBufferBytes);
  shared->self.log2Slots = static_cast<std::uint8_t>(config.memifLog2Slots);
  shared->self.directory = directory.value();
  shared->self.directoryId = directoryId(directory.value());
  shared->base = directory.value() + "/" + toHex(shared->self.portId);
  shared->directory = keepFromAging(directory.value());
  auto page = WakePage::create();
  if (!page) return page.error();
  shared->page = std::move(page).value();
  if (doorbell >= 0) {
    FileDescriptor own(::fcntl(doorbell, F_DUPFD_CLOEXEC, 0));
    if (!own) return refused("fcntl(F_DUPFD_CLOEXEC)");
    shared->page.setDoorbell(std::move(own));
  }
  shared->epoll.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!shared->epoll) return refused("epoll_create1");
  shared->events.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  FileDescriptor stopEvent(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!shared->events || !stopEvent) return refused("eventfd2");
  if (const Status tried = rehearse(config, *shared); !tried) return tried.error();
  auto listener = listenIn(config, *shared, ".sock");
  if (!listener) return listener.error();
  auto port = std::make_unique<MemifPort>(std::move(shared), std::move(listener).value(), std::move(stopEvent));
  auto capture = PortCapture::create(config, "memif", "memif in " + directory.value());
  if (!capture) return capture.error();
  const Status started = port->start(std::move(capture).value());
  if (!started) return started.error();
  return std::unique_ptr<PacketPort>(std::move(port));
}

MemifPort::MemifPort(std::unique_ptr<MemifShared> shared, FileDescriptor listener, FileDescriptor stopEvent)
    : shared_(std::move(shared)),
      pid_(::getpid()),
      maxDatagramBytes_(shared_->self.bufferBytes - kFrameHeaderBytes),
      listener_(std::move(listener)),
      stopEvent_(std::move(stopEvent)),
      self_(std::size_t{1} << shared_->self.log2Slots, shared_->self.bufferBytes),
      selfHeaders_(memifFlow(shared_->self, shared_->self)) {}

Status MemifPort::start(std::unique_ptr<PortCapture> capture) {
  capture_ = std::move(capture);
  if (!addToEpoll(shared_->epoll.get(), listener_.get()) || !addToEpoll(shared_->epoll.get(), stopEvent_.get())) {
    return refused("epoll_ctl");
  }
  keepSpare();  // without it, a peer that connects when none is left would get no answer
  if (!spare_) return refused("fcntl");
  const SignalsBlocked blocked;  // they belong to the application's threads
  control_ = std::thread([this] { watchSockets(); });
  pthread_setname_np(control_.native_handle(), "gb-memif");
  return {};
}

MemifPort::~MemifPort() {
  if (::getpid() != pid_) {
    // In a forked child, thread, sockets and memory are the parent's: leave them alone.
    if (control_.joinable()) control_.detach();
    for (auto& link : links_) (void)link.release();
    return;
  }
  if (control_.joinable()) {
    const std::uint64_t one = 1;
    (void)!::write(stopEvent_.get(), &one, sizeof(one));
    control_.join();
  }
  links_.clear();
  strangers_.clear();
  ::unlink((shared_->base + ".sock").c_str());  // last: marks the port as alive
}

std::string MemifPort::describe() const { return "memif in " + printable(shared_->self.directory); }

void MemifPort::watchSockets() {
  for (;;) {
    std::array<epoll_event, 16> events;
    const int count = ::epoll_wait(shared_->epoll.get(), events.data(), static_cast<int>(events.size()), -1);
    std::uint64_t stop = 0;
    if (::read(stopEvent_.get(), &stop, sizeof(stop)) == sizeof(stop)) return;
    if (count <= 0) continue;
    controlPending_.store(true, std::memory_order_release);
    shared_->page.wakeIfSleeping();
  }
}

Result<LinkId> MemifPort::openLink(std::span<const std::byte> remoteAddress) {
  auto decoded = decodeMemifAddress(remoteAddress);
  if (!decoded) return decoded.error();
  const MemifAddress& peer = decoded.value();
  const MemifAddress& self = shared_->self;
  const auto refuse = [](std::string message) {
    return Error{ErrorScope::kSession, ErrorCode::kConfiguration, std::move(message)};
  };
  if (peer.machineId != self.machineId) {
    return refuse(
        "the peer is on another machine, and link mode memif joins processes of one: set GLOO_BYPASS_LINK=netdev "
        "(or pci) on all ranks");
  }
  if (peer.directoryId != self.directoryId) {
    return refuse(
        fmt::format("memif directory is '{}' here, '{}' at the peer, and not the same one: set the same "
                    "GLOO_BYPASS_MEMIF_DIRECTORY, and mount it in all containers",
                    printable(self.directory), printable(peer.directory)));
  }
  if (peer.bufferBytes != self.bufferBytes || peer.log2Slots != self.log2Slots) {
    return refuse(
        fmt::format("memif rings are 2^{} x {} bytes here, 2^{} x {} at the peer: set the same sizes on all ranks",
                    self.log2Slots, self.bufferBytes, peer.log2Slots, peer.bufferBytes));
  }
  if (peer.portId == self.portId) {
    if (selfLink_ == 0) {
      links_.push_back(nullptr);
      selfLink_ = static_cast<LinkId>(links_.size() - 1 + kFirstLink);
    }
    return selfLink_;
  }
  for (const MemifLink* link : polled_) {
    if (link->peer().portId == peer.portId) return link->id();
  }
  if (polled_.size() >= kMaxLinks) {
    return Error{ErrorScope::kSession, ErrorCode::kExhausted,
                 fmt::format("this process shares memory with {} others already, and more are not allowed", kMaxLinks)};
  }
  const auto id = static_cast<LinkId>(links_.size() + kFirstLink);
  const MemifPages pages = polled_.size() < kLinksWithPages ? MemifPages::kAtOnce : MemifPages::kWhenTouched;
  links_.push_back(std::make_unique<MemifLink>(*shared_, id, peer, pages));
  polled_.push_back(links_.back().get());
  introduce(*polled_.back());
  controlPending_.store(true, std::memory_order_relaxed);  // the next receive makes the first step
  return id;
}

bool MemifPort::reaches(std::span<const std::byte> remoteAddress) const {
  if (const auto peer = decodeMemifAddress(remoteAddress)) {
    return peer.value().machineId == shared_->self.machineId && peer.value().directoryId == shared_->self.directoryId;
  }
  const std::string why = saidNoMemory_ ? "" : whyNoMemory(remoteAddress, shared_->self.machineId);
  if (!why.empty()) std::fprintf(stderr, "gloo-bypass: %s\n", why.c_str());
  saidNoMemory_ = saidNoMemory_ || !why.empty();
  return false;
}

MemifLink* MemifPort::find(LinkId id) const {
  GLOO_BYPASS_CHECK(id >= kFirstLink && id - kFirstLink < links_.size());
  return links_[id - kFirstLink].get();
}

void MemifPort::closeLink(LinkId id) {
  MemifLink* const link = find(id);
  if (link == nullptr) return;
  link->leave();
  std::erase(polled_, link);
  noteRefused(*link, false);
  links_[id - kFirstLink].reset();
}

LinkProperties MemifPort::linkProperties(LinkId) const {
  return LinkProperties{.maxDatagramBytes = maxDatagramBytes_, .lossless = true, .local = true, .exempt = true};
}

// A stranger may already be waiting for this link.
void MemifPort::introduce(MemifLink& link) {
  if (link.state() != MemifLink::State::kAwaiting) return;
  for (std::size_t i = 0; i < strangers_.size(); ++i) {
    Stranger& stranger = strangers_[i];
    if (!stranger.greeted || stranger.hello.senderId != link.peer().portId) continue;
    if (!stillWaits(stranger)) continue;  // it gave up; it may have another connection
    link.adopt(std::move(stranger.fd), std::move(stranger.page));
    strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
}

bool MemifPort::stillWaits(const Stranger& stranger) {
  std::byte word;
  std::size_t length = 0;
  FileDescriptor attached;
  return receivePacket(stranger.fd.get(), std::span(&word, 1), length, attached) == PacketIo::kWouldBlock;
}

bool MemifPort::greetStranger(Stranger& stranger) {
  if (stranger.greeted) return stillWaits(stranger);
  const PacketIo io = receiveHello(stranger.fd.get(), stranger.hello, stranger.page);
  if (io == PacketIo::kWouldBlock) return true;
  if (io == PacketIo::kExhausted) {
    sayExhausted(exhausted(errno));
    sayNoDescriptors(stranger.fd.get());
  }
  if (io != PacketIo::kDone || stranger.hello.targetSecret != shared_->self.secret) return false;
  stranger.greeted = true;
  return true;
}

void MemifPort::sayExhausted(const std::string& why) {
  if (std::exchange(saidExhausted_, true)) return;
  std::fprintf(stderr, "gloo-bypass: another process of this machine cannot connect to this one: %s\n", why.c_str());
}

// Another thread may have taken it since we gave it up.
void MemifPort::keepSpare() {
  if (!spare_) spare_.reset(::fcntl(stopEvent_.get(), F_DUPFD_CLOEXEC, 0));
}

// Answers the stranger, who would otherwise wait until its connect timeout. False: no one is waiting; accept fails in
// the same way then.
bool MemifPort::refuseStranger(const std::string& why) {
  spare_.reset();
  FileDescriptor fd = acceptPacketSocket(listener_.get());
  const bool waited = static_cast<bool>(fd);
  if (waited) sayNoDescriptors(fd.get());
  fd.reset();
  keepSpare();
  if (waited) sayExhausted(why);
  return waited;
}

// Whether one more connection may be accepted. The oldest one's hello may have arrived unread.
bool MemifPort::roomForSilent() {
  while (silentStrangers() >= kMaxSilent) {
    const auto oldest = oldestSilent();
    if (!greetStranger(*oldest)) {
      strangers_.erase(oldest);
    } else if (!oldest->greeted) {
      return oldest->since != kNever && now_ - oldest->since >= kLeastSilence;
    }
  }
  return true;
}

void MemifPort::addStranger(Stranger stranger) {
  if (!greetStranger(stranger)) return;
  if (!stranger.greeted && silentStrangers() >= kMaxSilent) {
    strangers_.erase(oldestSilent());
    ++counters_.droppedForeign;
  }
  strangers_.push_back(std::move(stranger));
}

void MemifPort::serviceStrangers() {
  keepSpare();
  bool awaitsSilent = false;
  for (;;) {
    awaitsSilent = !roomForSilent();
    if (awaitsSilent) break;
    FileDescriptor fd = acceptPacketSocket(listener_.get());
    if (!fd) {
      const std::string why = exhausted(errno);
      if (why.empty() || !spare_ || !refuseStranger(why)) break;
      continue;
    }
    if (strangers_.size() >= kMaxStrangers || !peerIsSameUser(fd.get()) ||
        !addToEpoll(shared_->epoll.get(), fd.get())) {
      ++counters_.droppedForeign;
      continue;
    }
    addStranger({.fd = std::move(fd), .greeted = false, .since = now_, .hello = {}, .page = {}});
  }
  std::erase_if(strangers_, [&](Stranger& s) {
    if (!greetStranger(s)) return true;
    if (s.greeted) return false;
    if (s.since == kNever) s.since = now_;
    const bool gone = now_ != kNever && now_ - s.since >= kLongestSilence;
    counters_.droppedForeign += gone ? 1 : 0;
    awaitsSilent |= !gone;
    return gone;
  });
  awaitsSilent_.store(awaitsSilent, std::memory_order_relaxed);
  if (strangers_.empty()) return;
  for (MemifLink* link : polled_) introduce(*link);
}

void MemifPort::serviceControl() {
  controlPending_.store(false, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  serviceStrangers();
  bool needsTicks = false;
  for (MemifLink* link : polled_) {
    link->service();
    needsTicks |= link->needsTicks();
  }
  needsTicks_.store(needsTicks, std::memory_order_relaxed);
}

void MemifPort::onTick(TimePoint now) {
  now_ = now;
  if (capture_) capture_->onTick();
  if (needsTicks_.load(std::memory_order_relaxed) || awaitsSilent_.load(std::memory_order_relaxed)) serviceControl();
}

Duration MemifPort::longestSleep() const {
  if (needsTicks_.load(std::memory_order_relaxed)) return kSetUpPollInterval;
  return awaitsSilent_.load(std::memory_order_relaxed) ? kSilencePollInterval : Duration::max();
}

void MemifPort::block(Duration timeout) { shared_->page.block(std::min(timeout, longestSleep())); }

std::size_t MemifPort::receive(PacketSink& sink, std::size_t maxDatagrams) {
  if (controlPending_.load(std::memory_order_relaxed)) serviceControl();
  // Ourselves and the links take turns, and each link gets one burst, so that none starves the others.
  // the others.
  selfFirst_ = !selfFirst_;
  std::size_t received = selfFirst_ ? self_.receive(sink, selfLink_, maxDatagrams, counters_) : 0;
  for (std::size_t visited = 0; visited < polled_.size() && received < maxDatagrams; ++visited) {
    if (nextPolled_ >= polled_.size()) nextPolled_ = 0;
    MemifLink* const link = polled_[nextPolled_++];
    if (link->state() >= MemifLink::State::kUp) received += receiveLink(*link, sink, maxDatagrams - received);
  }
  if (!selfFirst_) received += self_.receive(sink, selfLink_, maxDatagrams - received, counters_);
  return received;
}

std::size_t MemifPort::receiveLink(MemifLink& link, PacketSink& sink, std::size_t maxDatagrams) {
  if (link.state() == MemifLink::State::kDown) {
    reportDown(link, sink);
    return 0;
  }
  MemifReceiveRing& ring = link.received();
  const std::optional<std::size_t> waiting = ring.waiting();
  if (!waiting) {
    link.ringBroken();
    reportDown(link, sink);
    return 0;
  }
  const std::size_t count = std::min(maxDatagrams, *waiting);
  const std::size_t ringSlots = std::size_t{1} << shared_->self.log2Slots;
  if (count == 0) {
    link.onSlotsFreed(0, true, ringSlots);
    if (link.state() == MemifLink::State::kDraining) {
      link.finishDraining();
      reportDown(link, sink);
    }
    return 0;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (i + 1 < *waiting) ring.prefetch(i + 1);
    const std::span<const std::byte> frame = ring.frame(i);
    if (capture_) capture_->received(frame, frame.size());
    deliver(link, sink, frame);
  }
  ring.release(count);
  link.onSlotsFreed(count, count < maxDatagrams, ringSlots);
  return count;
}

void MemifPort::deliver(MemifLink& link, PacketSink& sink, std::span<const std::byte> frame) {
  ++counters_.packetsReceived;
  counters_.bytesReceived += frame.size();
  std::optional<std::size_t> datagramBytes;
  if (frame.size() >= kFrameHeaderBytes) {
    std::array<std::byte, kFrameHeaderBytes> headers;  // copy: the peer may change the ring's memory
    std::memcpy(headers.data(), frame.data(), headers.size());
    datagramBytes = udpDatagramBytes(headers, frame.size());
  }
  if (!datagramBytes) {
    ++counters_.droppedMalformed;
    return;
  }
  sink.onDatagram(link.id(), frame.subspan(kFrameHeaderBytes, *datagramBytes));
}

// Frees the link's shared memory and descriptors at once.
void MemifPort::reportDown(MemifLink& link, PacketSink& sink) {
  const std::unique_ptr<MemifLink> ended = std::move(links_[link.id() - kFirstLink]);
  std::erase(polled_, &link);
  noteRefused(link, false);
  sink.onLinkDown(link.id(), link.error());
}

std::size_t MemifPort::transmit(LinkId id, std::span<const OutgoingDatagram> datagrams) {
  if (selfLink_ != 0 && id == selfLink_) return transmitSelf(datagrams);
  MemifLink* const link = find(id);
  if (link == nullptr || link->state() != MemifLink::State::kUp) return 0;
  std::size_t sent = fill(*link, datagrams);
  bool full = sent < datagrams.size();
  if (link->state() != MemifLink::State::kUp) return sent;
  if (noteRefused(*link, full) && full) {
    // The peer may have emptied the ring before it could see that we wait for room: look once more.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    sent += fill(*link, datagrams.subspan(sent));
    full = sent < datagrams.size();
    noteRefused(*link, full);
  }
  if (full) ++counters_.transmitFull;
  if (sent > 0 && link->markForWake()) wakePending_.push_back(id);
  return sent;
}

// The page's flag says whether ANY link waits for room. True: this link's state has changed.
bool MemifPort::noteRefused(MemifLink& link, bool refused) {
  if (!link.setRefused(refused)) return false;
  refusedLinks_ += refused ? 1 : -1;
  shared_->page.setWaitsForSpace(refusedLinks_ > 0);
  return true;
}

void MemifPort::wakePeers() {
  for (const LinkId id : wakePending_) {
    if (MemifLink* const link = find(id)) link->wakePeer();
  }
  wakePending_.clear();
}

std::size_t MemifPort::fill(MemifLink& link, std::span<const OutgoingDatagram> datagrams) {
  MemifSendRing& ring = link.toSend();
  const std::optional<std::size_t> room = ring.room();
  const std::size_t count = std::min(datagrams.size(), room.value_or(0));
  std::size_t unpublished = 0;
  bool broken = !room;
  std::size_t sent = 0;
  for (; sent < count; ++sent) {
    const std::span<const std::byte> header = datagrams[sent].header, payload = datagrams[sent].payload;
    const std::size_t datagramBytes = header.size() + payload.size();
    GLOO_BYPASS_CHECK(datagramBytes <= maxDatagramBytes_);
    const std::span<std::byte> slot = ring.slot();
    if (slot.empty()) {
      broken = true;
      break;
    }
    link.headers().write(slot.data(), datagramBytes);
    std::byte* const out = slot.data() + kFrameHeaderBytes;
    if (!header.empty()) std::memcpy(out, header.data(), header.size());
    if (!payload.empty()) std::memcpy(out + header.size(), payload.data(), payload.size());
    if (capture_) capture_->sent(slot.first(kFrameHeaderBytes + datagramBytes));
    ring.push(kFrameHeaderBytes + datagramBytes);
    counters_.bytesSent += kFrameHeaderBytes + datagramBytes;
    unpublished += datagramBytes;
    if (unpublished >= kPublishBytes) {
      ring.publish();
      unpublished = 0;
    }
  }
  if (sent > 0) ring.publish();
  counters_.packetsSent += sent;
  if (broken) {
    link.ringBroken();
    shared_->page.wakeIfSleeping();  // for receive(), which reports it
  }
  return sent;
}

std::size_t MemifPort::transmitSelf(std::span<const OutgoingDatagram> datagrams) {
  std::size_t sent = 0;
  for (; sent < datagrams.size() && self_.push(datagrams[sent]); ++sent) {
    if (capture_)
      capture_->sent(selfHeaders_.written(datagrams[sent].header.size() + datagrams[sent].payload.size()),
                     datagrams[sent]);
    ++counters_.packetsSent;
    counters_.bytesSent += kFrameHeaderBytes + datagrams[sent].header.size() + datagrams[sent].payload.size();
  }
  if (sent < datagrams.size()) ++counters_.transmitFull;
  if (sent > 0) shared_->page.wakeIfSleeping();
  return sent;
}

PortCounters MemifPort::counters() const {
  PortCounters counters = counters_;
  if (capture_) capture_->addTo(counters);
  return counters;
}

void MemifPort::finishCapture() {
  if (capture_) capture_->finish();
}

}  // namespace gloo_bypass::dpdk
