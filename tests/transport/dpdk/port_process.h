// Port tests between real processes. The test's own process never starts the EAL: every end runs in a forked child,
// and a child's failed expectations fail the test.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/base/config.h"
#include "transport/datagram/packet_port.h"

namespace gloo_bypass::dpdk {

// One end's connection to the other, beside the ports under test. Every wait is bounded and ends in a failed
// expectation.
class Partner {
 public:
  explicit Partner(int fd) : fd_(fd) {}
  void send(std::span<const std::byte> bytes) const;
  std::vector<std::byte> receive() const;
  // Returns once the other end has called it too.
  void meet() const;

 private:
  int fd_;
};

struct ProcessEnd {
  std::function<void(Partner&)> body;
  bool killed = false;  // expected to end by SIGKILL
};

// Runs each body in a separate child and waits for both, at most four minutes.
void runProcesses(const ProcessEnd& a, const ProcessEnd& b);
void runProcess(const std::function<void()>& body);

// A configuration for memif in a directory of this test's process, removed by removeTestDirectory().
TransportConfig memifTestConfig();
std::string testDirectory();
// For a child: ends it, with a failure, if there is no port.
std::unique_ptr<PacketPort> openPort(const TransportConfig& config = memifTestConfig());
void removeTestDirectory();

// Exchanges addresses and opens the link.
LinkId linkPorts(PacketPort& port, Partner& partner);

// Monotonic, bounded by `limit`: false when it ran out.
bool waitFor(const std::function<bool()>& condition, Duration limit = std::chrono::seconds(20));

// AddressSanitizer maps memory and holds locks while a thread begins. Until it has finished, neither take memory away
// nor fork, or the child waits for that lock for ever.
bool otherThreadsSleep();

// Keeps what arrives.
class CollectingSink : public PacketSink {
 public:
  void onArrivals() noexcept override { arrivalsTold = true; }
  void onDatagram(LinkId link, std::span<const std::byte> datagram) noexcept override;
  void onStranger() noexcept override { ++strangers; }
  void onLinkDown(LinkId link, const Error& error) noexcept override;
  bool sentBySession(LinkId, std::span<const std::byte> datagram) const noexcept override {
    return datagram.size() >= session.size() && std::equal(session.begin(), session.end(), datagram.begin());
  }
  std::size_t strangers = 0;
  bool arrivalsTold = false;       // not called for lossless links
  std::vector<std::byte> session;  // how datagrams of "a session" begin
  std::vector<std::vector<std::byte>> datagrams;
  void onDatagramTooLarge(LinkId link, std::size_t bytes) noexcept override { tooLarge.emplace_back(link, bytes); }
  std::vector<std::pair<LinkId, Error>> down;
  std::vector<std::pair<LinkId, std::size_t>> tooLarge;
};

}  // namespace gloo_bypass::dpdk
