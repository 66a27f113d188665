// How ranks of a new group find each other: a store of keys and values that all of them share, as torch.distributed's
// Store and the trainer's are. Values are hostile bytes.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/status.h"
#include "transport/base/time.h"

namespace gloo_bypass::collectives {

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // Thread: the one that makes the group, or uses it. Keys are below 64 printable characters, and unique to the group.
  virtual Status set(const std::string& key, std::span<const std::byte> value) = 0;
  // Waits until the key is there; kTimedOut, or another code where the store itself failed.
  virtual Result<std::vector<std::byte>> get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // Whether it is there now.
  virtual Result<bool> has(const std::string& key) = 0;
  // Why whoever waits for other ranks should stop; ok while there is no reason.
  virtual Status stopped() { return {}; }
};

// What get() answers where a store gave up, since it does not say why: one that did so before half of its timeout has
// failed itself.
inline Error noValue(std::string text, Duration waited, std::chrono::milliseconds timeout) {
  const bool isBroken = waited < timeout / 2;
  return {ErrorScope::kSession, isBroken ? ErrorCode::kUnavailable : ErrorCode::kTimedOut, std::move(text)};
}

}  // namespace gloo_bypass::collectives
