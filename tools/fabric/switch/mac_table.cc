#include "tools/fabric/switch/mac_table.h"

namespace gloo_bypass::fabric {
namespace {

std::uint64_t keyOf(const dpdk::MacAddress& mac) {
  std::uint64_t key = 0;
  for (const std::uint8_t byte : mac) key = key << 8 | byte;
  return key;
}

}  // namespace

bool MacTable::learn(const dpdk::MacAddress& mac, std::size_t port) {
  if (isGroupAddress(mac)) return true;  // no host's own
  const auto found = entries_.find(keyOf(mac));
  if (found != entries_.end()) {
    if (found->second.port == port) return true;
    if (found->second.fixed) return false;
    found->second.port = port;
    return true;
  }
  if (entries_.size() < kMaxAddresses) entries_.emplace(keyOf(mac), Entry{port, false});
  return true;
}

void MacTable::fix(const dpdk::MacAddress& mac, std::size_t port) { entries_[keyOf(mac)] = Entry{port, true}; }

std::optional<std::size_t> MacTable::find(const dpdk::MacAddress& mac) const {
  const auto found = entries_.find(keyOf(mac));
  if (found == entries_.end()) return std::nullopt;
  return found->second.port;
}

}  // namespace gloo_bypass::fabric
