// Which MAC address a next hop has: asks by ARP, learns from answers, gives up after bounded tries. Pure: frames go in
// and out as bytes, time is an argument.
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
  // An entry is asked anew after this; the old address stays in use meanwhile.
  static constexpr Duration kRefreshAfter = std::chrono::seconds(30);

  // `answer`: reply to requests for our address (no kernel does it for us).
  NeighbourTable(MacAddress mac, Ipv4Address ip, bool answer) : mac_(mac), ip_(ip), answer_(answer) {}

  // Begins to look for `hop`, anew if that has failed; harmless when known.
  void want(Ipv4Address hop);
  std::optional<MacAddress> find(Ipv4Address hop) const;
  // Another number once find() may answer otherwise.
  std::uint64_t version() const { return version_; }
  // All tries were in vain.
  bool failed(Ipv4Address hop) const;
  // Some wanted hop is not known yet.
  bool searching() const;

  // A packet of ours came from there: as good as an answer for a hop not known yet.
  void learn(Ipv4Address hop, const MacAddress& mac, TimePoint now);
  // An ARP frame arrived. Returns the reply to send, if any.
  std::optional<ArpFrame> handle(std::span<const std::byte> frame, TimePoint now);
  // Requests that are due.
  std::vector<ArpFrame> tick(TimePoint now);

 private:
  struct Entry {
    std::optional<MacAddress> mac;
    int tries = 0;
    TimePoint next{};  // of the next request
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
