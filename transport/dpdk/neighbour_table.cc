#include "transport/dpdk/neighbour_table.h"

#include <algorithm>
#include <cstring>

namespace gloo_bypass::dpdk {
namespace {

constexpr std::uint16_t kRequest = 1;
constexpr std::uint16_t kReply = 2;
constexpr Duration kFirstRetry = std::chrono::milliseconds(50);
constexpr int kMaxDoublings = 5;
// Ethernet and IPv4, 6 and 4 bytes of address.
constexpr std::array<std::byte, 6> kArpPrefix{std::byte{0}, std::byte{1}, std::byte{8},
                                              std::byte{0}, std::byte{6}, std::byte{4}};

bool isUnicast(const MacAddress& mac) { return (mac[0] & 1) == 0 && mac != MacAddress{}; }

}  // namespace

void NeighbourTable::want(Ipv4Address hop) {
  if (failed(hop)) entries_.erase(hop);  // find() knew nothing of it
  entries_.try_emplace(hop);
}

std::optional<MacAddress> NeighbourTable::find(Ipv4Address hop) const {
  const auto it = entries_.find(hop);
  return it == entries_.end() ? std::nullopt : it->second.mac;
}

bool NeighbourTable::failed(Ipv4Address hop) const {
  const auto it = entries_.find(hop);
  return it != entries_.end() && !it->second.mac && it->second.tries > kMaxTries;
}

bool NeighbourTable::searching() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const auto& e) { return !e.second.mac && e.second.tries <= kMaxTries; });
}

void NeighbourTable::learn(Ipv4Address hop, const MacAddress& mac, TimePoint now) {
  const auto it = entries_.find(hop);
  if (it == entries_.end() || it->second.mac || !isUnicast(mac)) return;
  it->second = Entry{mac, 0, now + kRefreshAfter};
  ++version_;
}

ArpFrame NeighbourTable::makeFrame(std::uint16_t operation, const MacAddress& to, const MacAddress& targetMac,
                                   Ipv4Address targetIp) const {
  ArpFrame frame{};
  std::memcpy(&frame[0], to.data(), 6);
  std::memcpy(&frame[6], mac_.data(), 6);
  writeBe16(&frame[12], kEtherTypeArp);
  std::memcpy(&frame[14], kArpPrefix.data(), kArpPrefix.size());
  writeBe16(&frame[20], operation);
  std::memcpy(&frame[22], mac_.data(), 6);
  writeBe32(&frame[28], ip_);
  std::memcpy(&frame[32], targetMac.data(), 6);
  writeBe32(&frame[38], targetIp);
  return frame;
}

std::optional<ArpFrame> NeighbourTable::handle(std::span<const std::byte> frame, TimePoint now) {
  if (frame.size() < kArpFrameBytes || readBe16(&frame[12]) != kEtherTypeArp ||
      std::memcmp(&frame[14], kArpPrefix.data(), kArpPrefix.size()) != 0) {
    return {};
  }
  MacAddress senderMac;
  std::memcpy(senderMac.data(), &frame[22], 6);
  const Ipv4Address senderIp = readBe32(&frame[28]);
  const Ipv4Address targetIp = readBe32(&frame[38]);
  // Only hops that we asked for enter the table, so that no one can flood it.
  if (const auto it = entries_.find(senderIp); it != entries_.end() && isUnicast(senderMac) && targetIp == ip_) {
    it->second = Entry{senderMac, 0, now + kRefreshAfter};
    ++version_;
  }
  if (!answer_ || readBe16(&frame[20]) != kRequest || targetIp != ip_ || !isUnicast(senderMac)) return {};
  return makeFrame(kReply, senderMac, senderMac, senderIp);
}

std::vector<ArpFrame> NeighbourTable::tick(TimePoint now) {
  std::vector<ArpFrame> requests;
  for (auto& [hop, entry] : entries_) {
    if (now < entry.next || (!entry.mac && entry.tries > kMaxTries)) continue;
    ++entry.tries;
    entry.next = now + kFirstRetry * (1 << std::min(entry.tries - 1, kMaxDoublings));
    // Known, but silent for all tries: keep the old address, and ask again much later.
    if (entry.mac && entry.tries > kMaxTries) {
      entry.tries = 0;
      entry.next = now + kRefreshAfter;
    }
    if (entry.tries <= kMaxTries) requests.push_back(makeFrame(kRequest, kBroadcastMac, MacAddress{}, hop));
  }
  return requests;
}

}  // namespace gloo_bypass::dpdk
