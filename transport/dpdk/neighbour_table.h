// Finds the MAC address of a next hop: asks by ARP, learns from answers, gives up after bounded tries. Pure: frames go
// in and out as bytes, time is an argument.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/time.h"
#include "transport/dpdk/frame.h"

namespace gloo_bypass::dpdk {

inline constexpr std::size_t kArpFrameBytes = kEthernetHeaderBytes + 28;
using ArpFrame = std::array<std::byte, kArpFrameBytes>;

class NeighbourTable {
 public:
  // 50 ms, 100 ms, ... 1.6 s, then every 1.6 s: about 13 s in all.
  static constexpr int kMaxTries = 12;
  // It asks again after this time, and uses the old address meanwhile.
  static constexpr Duration kRefreshAfter = std::chrono::seconds(30);

  // `answer`: reply to requests for our address (if no kernel does it for us).
  NeighbourTable(MacAddress mac, Ipv4Address ip, bool answer) : mac_(mac), ip_(ip), answer_(answer) {}

  // Begins to look for `hop`, again if that has failed; harmless if it is known.
  void want(Ipv4Address hop);
  std::optional<MacAddress> find(Ipv4Address hop) const;
  // Changes whenever find() may answer differently.
  std::uint64_t version() const { return version_; }
  // All tries failed.
  bool failed(Ipv4Address hop) const;
  // Some wanted hop is not known yet.
  bool searching() const;

  // A packet of ours came from there, which counts as an answer for an unknown hop.
  void learn(Ipv4Address hop, const MacAddress& mac, TimePoint now);
  // An ARP frame arrived. Returns the reply to send, if any.
  std::optional<ArpFrame> handle(std::span<const std::byte> frame, TimePoint now);
  // The requests that are due.
  std::vector<ArpFrame> tick(TimePoint now);

 private:
  struct Entry {
    std::optional<MacAddress> mac;
    int tries = 0;
    TimePoint next{};  // when the next request is due
  };
  ArpFrame makeFrame(std::uint16_t operation, const MacAddress& to, const MacAddress& targetMac,
                     Ipv4Address targetIp) const;

  const MacAddress mac_;
  const Ipv4Address ip_;
  const bool answer_;
  std::map<Ipv4Address, Entry> entries_;
  std::uint64_t version_ = 1;
};

}  // namespace gloo_bypass::dpdk
