#include "tools/fabric/switch/tap_port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "transport/dpdk/frame.h"

namespace gloo_bypass::fabric {
namespace {

Error tapError(const std::string& name, const std::string& what) {
  return Error{ErrorScope::kDevice, ErrorCode::kUnavailable, fmt::format("tap interface '{}': {}", name, what)};
}

std::string reason(int code) {
  if (code == EPERM || code == EACCES) return "no right to make it: run the fabric as root, or with CAP_NET_ADMIN";
  if (code == EBUSY || code == EEXIST) return "there is one of this name already";
  return std::strerror(code);
}

ifreq requestFor(const std::string& name) {
  ifreq request{};
  std::memcpy(request.ifr_name, name.data(), std::min(name.size(), sizeof(request.ifr_name) - 1));
  return request;
}

Status enterNamespace(const std::string& interface, const std::string& name) {
  const std::string path = name.find('/') == std::string::npos ? "/run/netns/" + name : name;
  const FileDescriptor target(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!target)
    return tapError(interface, fmt::format("network namespace '{}': {} (ip netns add {} makes it)", name,
                                           std::strerror(errno), name));
  if (::setns(target.get(), CLONE_NEWNET) != 0)
    return tapError(interface, fmt::format("network namespace '{}': {}", name, reason(errno)));
  return {};
}

sockaddr socketAddress(std::uint32_t ipv4) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(ipv4);
  sockaddr generic;
  std::memcpy(&generic, &address, sizeof(generic));
  return generic;
}

// IPv6 sends of its own accord; nothing here speaks it.
void silenceIpv6(const std::string& name) {
  const FileDescriptor setting(
      ::open(fmt::format("/proc/sys/net/ipv6/conf/{}/disable_ipv6", name).c_str(), O_WRONLY | O_CLOEXEC));
  if (setting) (void)!::write(setting.get(), "1", 1);
}

// Address, MTU and up, as `ip` would.
Status configure(const HostDescription& host, std::size_t mtu) {
  const std::string& name = host.port.name;
  silenceIpv6(name);
  const FileDescriptor control(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!control) return tapError(name, reason(errno));
  const auto set = [&](unsigned long what, const std::string& field, auto fill) -> Status {
    ifreq request = requestFor(name);
    fill(request);
    if (::ioctl(control.get(), what, &request) == 0) return {};
    return tapError(name, field + reason(errno));
  };
  Status done = set(SIOCSIFMTU, fmt::format("MTU {}: ", mtu), [&](ifreq& r) { r.ifr_mtu = static_cast<int>(mtu); });
  if (done && host.mac) {
    done = set(SIOCSIFHWADDR, "MAC address: ", [&](ifreq& r) {
      r.ifr_hwaddr.sa_family = ARPHRD_ETHER;
      std::memcpy(r.ifr_hwaddr.sa_data, host.mac->data(), host.mac->size());
    });
  }
  const std::uint32_t mask = ~std::uint32_t{0} << (32 - host.prefixLength);
  if (done) done = set(SIOCSIFADDR, "address: ", [&](ifreq& r) { r.ifr_addr = socketAddress(host.ipv4); });
  if (done) done = set(SIOCSIFNETMASK, "prefix: ", [&](ifreq& r) { r.ifr_netmask = socketAddress(mask); });
  if (done) done = set(SIOCSIFFLAGS, "", [](ifreq& r) { r.ifr_flags = static_cast<short>(IFF_UP | IFF_RUNNING); });
  return done;
}

Result<FileDescriptor> makeInterface(const HostDescription& host, std::size_t mtu) {
  const std::string& name = host.port.name;
  if (!host.port.networkNamespace.empty()) {
    if (const Status entered = enterNamespace(name, host.port.networkNamespace); !entered) return entered.error();
  }
  FileDescriptor tap(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!tap) return tapError(name, "/dev/net/tun: " + reason(errno));
  ifreq request = requestFor(name);
  // Exclusive: one that exists is somebody else's.
  request.ifr_flags = static_cast<short>(IFF_TAP | IFF_NO_PI | IFF_TUN_EXCL);
  if (::ioctl(tap.get(), TUNSETIFF, &request) != 0) return tapError(name, reason(errno));
  if (const Status configured = configure(host, mtu); !configured) return configured.error();
  return tap;
}

}  // namespace

Result<std::unique_ptr<TapPort>> TapPort::create(const HostDescription& host, std::size_t longestFrame, int epoll) {
  std::unique_ptr<TapPort> port(new TapPort(host.port.name, longestFrame, epoll));
  // An interface belongs to the namespace of the thread that makes it: one that ends again.
  Result<FileDescriptor> made = tapError(host.port.name, "not made");
  std::thread([&] { made = makeInterface(host, longestFrame - dpdk::kEthernetHeaderBytes); }).join();
  if (!made) return made.error();
  port->tap_ = std::move(made).value();
  if (!watch(epoll, port->tap_.get(), 0)) return tapError(host.port.name, std::strerror(errno));
  return port;
}

void TapPort::wakeOnFrames(bool wanted) {
  epoll_event event{};
  if (wanted) event.events = EPOLLIN;
  (void)::epoll_ctl(epoll_, EPOLL_CTL_MOD, tap_.get(), &event);
}

std::size_t TapPort::receive(FrameSink& sink, std::size_t maxFrames) {
  std::size_t taken = 0;
  for (; taken < maxFrames; ++taken) {
    const ssize_t length = ::read(tap_.get(), buffer_.data(), buffer_.size());
    if (length <= 0) break;
    take({buffer_.data(), static_cast<std::size_t>(length)}, sink);
  }
  return taken;
}

std::size_t TapPort::transmit(std::span<Frame* const> frames) {
  std::size_t taken = 0;
  for (; taken < frames.size(); ++taken) {
    const std::span<const std::byte> bytes = frames[taken]->bytes();
    const ssize_t written = ::write(tap_.get(), bytes.data(), bytes.size());
    if (written < 0 && (errno == EAGAIN || errno == EINTR)) break;
    // What the kernel refuses for good (the interface is down) is gone, as on a wire.
    if (written < 0) continue;
    ++counters_.framesOut;
    counters_.bytesOut += bytes.size();
  }
  return taken;
}

}  // namespace gloo_bypass::fabric
