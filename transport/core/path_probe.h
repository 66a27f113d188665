// Finds out how large a datagram the path carries: probes are padded to the size in question and answered. Pure.
//
//   start(certain, wanted): tries wanted, then the usual sizes between, largest first; each kTries times.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/base/time.h"

namespace gloo_bypass {

class PathProbe {
 public:
  void start(TimePoint now, std::size_t certain, std::size_t wanted) {
    confirmed_ = certain;
    candidate_ = wanted > certain ? wanted : 0;
    tries_ = 0;
    sendAt_ = candidate_ != 0 ? now : kNever;
  }
  std::size_t confirmed() const { return confirmed_; }
  bool due(TimePoint now) const { return now >= sendAt_; }
  TimePoint deadline() const { return sendAt_; }
  std::size_t candidate() const { return candidate_; }
  // A probe went out; the next is due after `timeout`, or the next smaller size is tried then.
  void onSent(TimePoint now, Duration timeout) {
    ++tries_;
    sendAt_ = now + timeout;
  }
  void onTimeout(TimePoint now) {
    if (now < sendAt_ || tries_ < kTries) return;
    tries_ = 0;
    std::size_t next = 0;
    for (std::size_t size : kUsual) {
      if (size < candidate_ && size > confirmed_ && size > next) next = size;
    }
    candidate_ = next;
    sendAt_ = next != 0 ? now : kNever;
  }
  void onReply(std::size_t size) {
    if (size != candidate_ || candidate_ == 0 || tries_ == 0) return;
    confirmed_ = size;
    candidate_ = 0;
    sendAt_ = kNever;
  }
  void stop() { sendAt_ = kNever; }

 private:
  static constexpr int kTries = 4;
  // MTU 9000 and 4000-odd without the IPv4 and UDP headers, and what tunnels leave of 1500.
  static constexpr std::array<std::size_t, 4> kUsual = {8972, 4068, 2048, 1472};

  std::size_t confirmed_ = 0, candidate_ = 0;
  int tries_ = 0;
  TimePoint sendAt_ = kNever;
};

}  // namespace gloo_bypass
