// Which port a MAC address was last seen at. Bounded: where the table is full a new address is not learnt, and frames
// to it are flooded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "transport/dpdk/frame.h"

namespace gloo_bypass::fabric {

inline bool isGroupAddress(const dpdk::MacAddress& mac) { return (mac[0] & 1) != 0; }

class MacTable {
 public:
  static constexpr std::size_t kMaxAddresses = 4096;

  // A source address of a frame that came in at `port`. A fixed address does not move. False: it is fixed at another
  // port.
  bool learn(const dpdk::MacAddress& mac, std::size_t port);
  // Known from the description, before anything was sent.
  void fix(const dpdk::MacAddress& mac, std::size_t port);
  std::optional<std::size_t> find(const dpdk::MacAddress& mac) const;
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::size_t port = 0;
    bool fixed = false;
  };
  std::unordered_map<std::uint64_t, Entry> entries_;
};

}  // namespace gloo_bypass::fabric
