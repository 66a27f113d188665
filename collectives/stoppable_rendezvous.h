// A rendezvous that stops waiting when there is a reason to.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/rendezvous.h"

namespace gloo_bypass::collectives {

class StoppableRendezvous final : public Rendezvous {
 public:
  // `inner` must outlive it. get() ends with the error of `stopped` within kLookEvery.
  StoppableRendezvous(Rendezvous& inner, std::function<Status()> stopped)
      : inner_(inner), stopped_(std::move(stopped)) {}

  Status set(const std::string& key, std::span<const std::byte> value) override { return inner_.set(key, value); }
  Result<bool> has(const std::string& key) override { return inner_.has(key); }
  Status stopped() override { return stopped_(); }
  Result<std::vector<std::byte>> get(const std::string& key, std::chrono::milliseconds timeout) override {
    for (;;) {
      const auto slice = std::min(timeout, kLookEvery);
      auto value = inner_.get(key, slice);
      timeout -= slice;
      if (value || value.error().code != ErrorCode::kTimedOut || timeout <= std::chrono::milliseconds(0)) return value;
      if (Status status = stopped_(); !status) return status.error();
    }
  }

 private:
  static constexpr std::chrono::milliseconds kLookEvery{200};

  Rendezvous& inner_;
  const std::function<Status()> stopped_;
};

}  // namespace gloo_bypass::collectives
