// Shared by tests of UDP ports: a sink that keeps datagrams, and the engine's way to wait for them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/progress/progress_engine.h"
#include "transport/udp/udp_port.h"

namespace gloo_bypass::udp {

class KeepingSink : public PacketSink {
 public:
  void onArrivals() noexcept override { arrivalsTold = true; }
  void onDatagram(LinkId link, std::span<const std::byte> datagram) noexcept override {
    links.push_back(link);
    datagrams.emplace_back(datagram.begin(), datagram.end());
  }
  void onStranger() noexcept override { ++strangers; }
  void onLinkDown(LinkId link, const Error& error) noexcept override { down.emplace_back(link, error.message); }
  void onDatagramTooLarge(LinkId link, std::size_t bytes) noexcept override { tooLarge.emplace_back(link, bytes); }
  bool sentBySession(LinkId, std::span<const std::byte> quoted) const noexcept override {
    return !session.empty() && quoted.size() >= session.size() &&
           std::equal(session.begin(), session.end(), quoted.begin());
  }
  std::size_t strangers = 0;
  bool arrivalsTold = false;       // not called for lossless links
  std::vector<std::byte> session;  // how datagrams of "a session" begin; empty: no session lives
  std::vector<LinkId> links;
  std::vector<std::vector<std::byte>> datagrams;
  std::vector<std::pair<LinkId, std::string>> down;
  std::vector<std::pair<LinkId, std::size_t>> tooLarge;
};

inline std::vector<std::byte> pattern(std::size_t length, std::size_t seed = 0) {
  std::vector<std::byte> bytes(length);
  for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(i * 31 + length + seed * 7);
  return bytes;
}

inline std::unique_ptr<PacketPort> openPort(const TransportConfig& config) {
  auto port = makeUdpPort(config);
  if (port.ok()) return std::move(port).value();
  ADD_FAILURE() << port.error().message;
  return nullptr;
}

inline LinkId linkTo(PacketPort& from, const PacketPort& to) {
  const auto link = from.openLink(to.localAddress());
  EXPECT_TRUE(link.ok()) << (link.ok() ? "" : link.error().message);
  return link.ok() ? link.value() : 0;
}

// The memory passed to transmit() stays unchanged until wakePeers(), and no longer.
inline std::vector<std::vector<std::byte>>& usersMemory(const PacketPort& port) {
  static std::map<const PacketPort*, std::vector<std::vector<std::byte>>> memory;
  return memory[&port];
}

inline std::size_t transmit(PacketPort& port, LinkId link, std::span<const std::byte> bytes) {
  const std::span<const std::byte> lent = usersMemory(port).emplace_back(bytes.begin(), bytes.end());
  const std::size_t cut = std::min<std::size_t>(lent.size(), 40);
  std::vector<std::byte> header(lent.begin(), lent.begin() + static_cast<std::ptrdiff_t>(cut));
  const OutgoingDatagram datagram{header, lent.subspan(cut), true};
  return port.transmit(link, std::span(&datagram, 1));
}

inline void wakePeers(PacketPort& port) {
  port.wakePeers();
  for (auto& lent : usersMemory(port)) std::fill(lent.begin(), lent.end(), std::byte{0xee});
  usersMemory(port).clear();
}

// Receives, and sleeps as the engine does, until `condition`. False: not within `limit`.
inline bool receiveUntil(PacketPort& port, KeepingSink& sink, const std::function<bool()>& condition,
                         Duration limit = std::chrono::seconds(10)) {
  const TimePoint end = monotonicNow() + limit;
  while (!condition()) {
    if (monotonicNow() >= end) return false;
    port.onTick(monotonicNow());
    port.armWakeup();
    if (port.receive(sink, 64) == 0 && !condition()) port.block(std::chrono::milliseconds(100));
    port.disarmWakeup();
  }
  return true;
}

}  // namespace gloo_bypass::udp
