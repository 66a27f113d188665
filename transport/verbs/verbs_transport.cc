#include "transport/verbs/verbs_transport.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <utility>

#include "transport/base/exhausted.h"
#include "transport/channel/channel_counters.h"
#include "transport/network/local_address.h"
#include "transport/sessions/channel_keys.h"
#include "transport/sessions/credentials.h"
#include "transport/verbs/verbs_transport_impl.h"

namespace gloo_bypass::verbs {
namespace {

// How often to check the control connections, the device's events and unmapped memory.
constexpr auto kTickInterval = std::chrono::milliseconds(1);
// The adapter may still come to an end, and says more.
constexpr std::chrono::seconds kAfterRetries{5};

Error systemError(const char* what) {
  const int error = errno;
  return {ErrorScope::kDevice, exhausted(error).empty() ? ErrorCode::kUnavailable : ErrorCode::kExhausted,
          fmt::format("{}: {}", what, reasonOf(error))};
}

// Peers reach the control connection by TCP. A GID of RoCE is an address of its interface; of InfiniBand it is none,
// and a link-local one leads nowhere without an interface.
Result<GidBytes> controlAddress(const Rail& rail, const TransportConfig& config) {
  GidBytes gid;
  std::copy_n(std::begin(rail.gid.raw), gid.size(), gid.begin());
  if (rail.attributes.link_layer == IBV_LINK_LAYER_ETHERNET && !endpointOf(gid, 0).isLinkLocal()) return gid;
  const auto addresses = network::chooseLocalAddresses(config.interface, config.masterAddress, kMaxRails);
  if (!addresses) return addresses.error();
  return bytesOf(addresses.value().front());
}

// How long an adapter repeats what is not acknowledged.
std::chrono::seconds retriesOf(const RdmaConfig& config) {
  const double wait = 4.096e-6 * static_cast<double>(1ull << config.timeoutExponent);
  return std::chrono::seconds(static_cast<std::int64_t>(std::ceil(wait * (1 + config.retryCount))));
}

std::string nameOf(const RailQueues& queues) {
  return fmt::format("{} port {}", queues.rail().deviceName, queues.rail().port);
}

}  // namespace

Status VerbsTransport::open() {
  if (config.security != Security::kOff && !config.rdma.trustedNetwork) {
    return {
        ErrorScope::kDevice, ErrorCode::kConfiguration,
        "GLOO_BYPASS_SECURITY='encrypt': an RDMA adapter sends messages in clear; use UDP, or netdev or pci of DPDK, "
        "or say with GLOO_BYPASS_RDMA_TRUSTED_NETWORK='on' that nobody else is on the adapters' network"};
  }
  auto loaded = loadCredentials(config);
  if (!loaded) return loaded.error();
  credentials_ = std::move(loaded).value();
  auto selected = selectRails(api, config);
  if (!selected) return selected.error();
  for (Rail& rail : selected.value()) {
    auto queues = RailQueues::make(api, std::move(rail));
    if (!queues) return queues.error();
    rails.push_back(std::move(queues).value());
    if (keyed() && !MemoryWindows::offered(rails.back()->limits())) {
      return {
          ErrorScope::kDevice, ErrorCode::kConfiguration,
          fmt::format("GLOO_BYPASS_SECURITY='encrypt': RDMA device {} has no memory windows of type 2, which end a "
                      "peer's right to read: choose another one with GLOO_BYPASS_RDMA_DEVICES, or another transport",
                      rails.back()->rail().deviceName)};
    }
    inSoftware_ = inSoftware_ || rails.back()->inSoftware();
  }
  if (rails.size() > kMaxRails) {
    return Status(
        ErrorScope::kDevice, ErrorCode::kConfiguration,
        fmt::format("GLOO_BYPASS_RDMA_DEVICES names {} devices: at most {} are striped", rails.size(), kMaxRails));
  }
  const std::size_t slotBytes = std::max(kMaxFrameBytes, kFrameHeaderBytes + config.rdma.eagerBytes);
  std::vector<ibv_pd*> domains;
  for (const auto& queues : rails) domains.push_back(queues->domain());
  registrations = std::make_unique<RegistrationCache>(api, std::move(domains), config.rdma.registrationCacheBytes,
                                                      keyed() ? ReadRight::kWindow : ReadRight::kRegistration);
  slots = std::make_unique<RegisteredSlots>(api, rails[0]->domain(), slotBytes, *registrations);
  if (!registrations->watching()) {
    std::fprintf(
        stderr, "gloo-bypass: RDMA: registered memory is not kept, every large message registers its buffer anew: %s\n",
        registrations->whyNotWatching().c_str());
  }
  auto ip = controlAddress(rails[0]->rail(), config);
  if (!ip) return ip.error();
  controlIp = ip.value();
  auto plane = ControlPlane::make(controlIp, keyed(), retriesOf(config.rdma) + kAfterRetries);
  if (!plane) return plane.error();
  control = std::move(plane).value();

  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return systemError("epoll_create1");
  if (!wakeup_.made()) return wakeup_.made();
  if (Status status = watch(wakeup_.heardAt()); !status) return status;
  if (Status status = watch(control->fd()); !status) return status;
  for (const auto& queues : rails) {
    if (Status status = watch(queues->completions().fd()); !status) return status;
    if (Status status = watch(queues->eventFd()); !status) return status;
    description_ += (description_.empty() ? "RDMA device " : ", ") + nameOf(*queues);
  }
  return {};
}

Status VerbsTransport::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0 ? Status() : Status(systemError("epoll_ctl"));
}

Result<std::unique_ptr<MessageChannel>> VerbsTransport::openChannel(const ChannelOptions& options,
                                                                    ChannelObserver* observer) {
  if (nextIndex_ == kMaxSessionIndex) {
    return Status(ErrorScope::kDevice, ErrorCode::kExhausted, "this process has made too many RDMA connections");
  }
  ChannelOptions bounded = options;
  bounded.connectTimeout = connectTimeout(config, options.connectTimeout);
  std::unique_ptr<RdmaSession> made;
  const auto open = [&] {
    made = std::make_unique<RdmaSession>(static_cast<RdmaDevice&>(*this), sessions_.dirtyList(), nextIndex_,
                                         sessions_.drawId(), sessions_.drawId(), bounded, observer);
    return made->open();
  };
  Status status = open();
  // Adapters' drivers lock memory for queues, too.
  if (!status && status.error().code == ErrorCode::kExhausted && registrations->makeRoom(SIZE_MAX)) status = open();
  if (!status) return status;
  const std::vector<std::byte> address = encodeRdmaAddress(made->address());
  auto agreement = makeKeyAgreement(credentials_, made->id(), address, bounded);
  if (!agreement) return agreement.error();
  made->secure(std::move(agreement).value());
  ++nextIndex_;
  RdmaSession& session = sessions_.add(std::move(made));
  return makeChannelHandle(session, address, session.offer());
}

// Pollable ----------------------------------------------------------------------------------------------------------

bool VerbsTransport::poll(TimePoint now) noexcept {
  bool progressed = false;
  if (now >= nextTick_) {
    nextTick_ = now + Duration(kTickInterval);
    progressed |= control->poll(now);
    handleEvents();
    registrations->dropUnmapped();
  }
  completedSome = false;
  progressed |= handleCompletions();
  sessions_.fireTimers(now);
  if (sessions_.anyDirty() && pumpDirty(now, waiterDrives_ && !completedSome)) {
    progressed = true;
    // A device in software has by now carried out what was posted, perhaps for milliseconds: a thread that waits for it
    // need not go round once more.
    if (inSoftware_ && handleCompletions() && sessions_.anyDirty()) (void)pumpDirty(monotonicNow(), false);
  }
  return progressed;
}

void VerbsTransport::flush(TimePoint now) noexcept {
  if (sessions_.anyDirty()) (void)pumpDirty(now, false);
}

void VerbsTransport::armWakeup() noexcept {
  for (const auto& queues : rails) queues->completions().requestNotification();
  nextTick_ = {};  // the next poll checks everything
}

void VerbsTransport::disarmWakeup() noexcept {
  for (const auto& queues : rails) queues->completions().consumeNotifications();
  nextTick_ = {};
}

void VerbsTransport::block(Duration timeout) noexcept {
  std::array<epoll_event, 8> events;
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                               static_cast<int>(std::min<std::int64_t>(milliseconds, 60'000)));
  for (int i = 0; i < count; ++i) {
    if (events[static_cast<std::size_t>(i)].data.fd == wakeup_.heardAt()) wakeup_.quiet();
  }
}

void VerbsTransport::wake() noexcept { wakeup_.ring(); }

// Events ------------------------------------------------------------------------------------------------------------

void VerbsTransport::handleEvents() {
  for (const auto& queues : rails) {
    pollfd readable{queues->eventFd(), POLLIN, 0};
    while (::poll(&readable, 1, 0) == 1) {
      ibv_async_event event{};
      if (!queues->takeEvent(&event)) break;
      handleEvent(*queues, event);
    }
  }
}

// A failure notifies observers, which may open channels: do not iterate over the map itself.
std::vector<RdmaSession*> VerbsTransport::allSessions() const {
  std::vector<RdmaSession*> all;
  for (const auto& [index, session] : sessions_.all()) all.push_back(session.get());
  return all;
}

// Afterwards queue pairs and completion queues, and the event's pointer to one, may be gone.
void VerbsTransport::fail(const Error& error, const std::function<bool(const RdmaSession&)>& concerned) {
  for (RdmaSession* session : allSessions()) {
    if (concerned(*session)) session->fail(error);
  }
}

void VerbsTransport::handleEvent(RailQueues& queues, const ibv_async_event& event) {
  const std::string what = fmt::format("RDMA device {}: {}", nameOf(queues), api.eventTypeName(event.event_type));
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      fail({ErrorScope::kSession,
            event.event_type == IBV_EVENT_QP_FATAL ? ErrorCode::kUnavailable : ErrorCode::kPeerViolatedProtocol, what},
           [&queues, number = event.element.qp->qp_num](const RdmaSession& session) {
             return session.hasQueuePair(queues, number);
           });
      break;
    case IBV_EVENT_CQ_ERR:
      fail({ErrorScope::kDevice, ErrorCode::kUnavailable, what},
           [queue = event.element.cq](const RdmaSession& session) { return session.completesIn(queue); });
      break;
    case IBV_EVENT_DEVICE_FATAL:
      fail({ErrorScope::kDevice, ErrorCode::kUnavailable, what}, [](const RdmaSession&) { return true; });
      break;
    case IBV_EVENT_PORT_ERR:
      if (event.element.port_num != queues.rail().port) break;  // an adapter's other port
      ++portDowns_;
      std::fprintf(stderr, "gloo-bypass: %s: connections break if it does not come back within the retries\n",
                   what.c_str());
      break;
    default:
      break;
  }
}

// Counters ----------------------------------------------------------------------------------------------------------

std::vector<PortFigure> VerbsTransport::portFigures(const ChannelCounters& total) const {
  const RegistrationCounters& r = registrations->counters();
  return {
      {"rails", "rdma_rails", "Verbs devices in use", rails.size()},
      {"active_mtu_bytes", "rdma_mtu_bytes", "MTU of the first device's port",
       128u << rails[0]->rail().attributes.active_mtu},
      {"rdma_bytes_sent", "rdma_sent_bytes_total", "Bytes sent by RDMA", total.wireBytesSent},
      {"rdma_bytes_received", "rdma_received_bytes_total", "Bytes received by RDMA", total.wireBytesReceived},
      {"slot_bytes_registered", "rdma_slots_bytes", "Registered memory for small messages", slots->registeredBytes()},
      {"memory_registrations", "rdma_memory_registrations_total", "Registrations of memory", r.registrations},
      {"registration_hits", "rdma_registration_hits_total", "Registrations found in the cache", r.hits},
      {"registration_misses", "rdma_registration_misses_total", "Registrations not found in the cache", r.misses},
      {"registrations_not_kept", "rdma_registrations_not_kept_total", "Registrations that could not be cached",
       r.uncached},
      {"registration_invalidations", "rdma_registration_invalidations_total", "Cached registrations dropped: unmapped",
       r.invalidations},
      {"registration_evictions", "rdma_registration_evictions_total", "Cached registrations dropped for room",
       r.evictions},
      {"pinned_bytes", "rdma_pinned_bytes", "Memory pinned by registrations", r.pinnedBytes},
      {"peak_pinned_bytes", "rdma_peak_pinned_bytes", "Most memory that registrations have pinned", r.peakPinnedBytes},
      {"stray_completions", "rdma_stray_completions_total", "Completions of queue pairs that are gone",
       strayCompletions_},
      {"port_downs", "rdma_port_downs_total", "Times a device's port went down", portDowns_},
      {"refused_control_connections", "rdma_refused_control_connections_total", "Control connections refused",
       control->refusedConnections()},
      {"forged_control_messages", "rdma_forged_control_messages_total",
       "Messages on control connections that the peer did not send, where GLOO_BYPASS_SECURITY is encrypt",
       control->forgedMessages()}};
}

TransportReport VerbsTransport::report() const {
  TransportReport report;
  report.description = description_;
  sessions_.report(&report);
  report.port = portFigures(report.total);
  // Frames and the data of READs, without the RoCE headers that the adapter adds.
  report.bytesSent = report.total.wireBytesSent;
  report.bytesReceived = report.total.wireBytesReceived;
  return report;
}

Result<std::shared_ptr<Transport>> makeVerbsTransport(const VerbsApi& api, const TransportConfig& config) {
  auto transport = VerbsTransport::make(api, config);
  if (!transport) return transport.error();
  transport.value()->startEngine({.spin = config.spin, .engineCpu = config.engineCpu});
  return std::shared_ptr<Transport>(std::move(transport).value());
}

Result<std::unique_ptr<PolledTransport>> makePolledVerbsTransport(const VerbsApi& api, const TransportConfig& config) {
  return VerbsTransport::make(api, config);
}

}  // namespace gloo_bypass::verbs
