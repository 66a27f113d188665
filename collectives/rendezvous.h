// How ranks of a new group find each other: a store of keys and values that all of them share, as torch.distributed's
// Store and the trainer's are. Values are hostile bytes.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "transport/base/status.h"

namespace gloo_bypass::collectives {

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // Thread: the one that makes the group, or uses it. Keys are below 64 printable characters, and unique to the group.
  virtual Status set(const std::string& key, std::span<const std::byte> value) = 0;
  // Waits until the key is there; kTimedOut.
  virtual Result<std::vector<std::byte>> get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // Whether it is there now.
  virtual Result<bool> has(const std::string& key) = 0;
};

}  // namespace gloo_bypass::collectives
