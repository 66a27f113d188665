// Receiver-granted credit for eager payload, as a total that only grows (QUIC's MAX_DATA), and its autotuning. Pure.
//
//   received <= limit = consumed + window;   staged (received and unmatched) bytes <= window
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transport/base/time.h"

namespace gloo_bypass {

class CreditWindow {
 public:
  CreditWindow(std::size_t windowBytes, std::size_t maxBytes)
      : window_(windowBytes), max_(std::max(windowBytes, maxBytes)), told_(windowBytes) {}

  std::uint64_t limit() const { return consumed_ + window_; }
  std::size_t windowBytes() const { return window_; }
  // False: more than was granted, which no correct peer sends.
  bool onReceived(std::size_t bytes) {
    if (bytes > limit() - received_) return false;
    received_ += bytes;
    return true;
  }
  // Bytes that are in the user's buffer now, or thrown away.
  void onConsumed(std::size_t bytes) { consumed_ += bytes; }

  // The limit has moved so far that a frame of its own must report it to the peer.
  bool updateDue() const { return limit() - told_ >= window_ / 4; }
  void onTold() { told_ = limit(); }

  // Long paths: at least `bytes`, and doubling up to the cap whenever half a window arrived within two round trips.
  void raiseTo(std::size_t bytes) { window_ = std::max(window_, std::min(bytes, max_)); }
  void autotune(TimePoint now, Duration roundTrip) {
    if (now - epochBegan_ > 2 * roundTrip) {
      epochBegan_ = now;
      epochReceived_ = received_;
    } else if (received_ - epochReceived_ >= window_ / 2) {
      window_ = std::min(window_ * 2, max_);
      epochBegan_ = now;
      epochReceived_ = received_;
    }
  }

 private:
  std::size_t window_, max_;
  std::uint64_t told_;
  std::uint64_t received_ = 0, consumed_ = 0;
  std::uint64_t epochReceived_ = 0;
  TimePoint epochBegan_{};
};

}  // namespace gloo_bypass
