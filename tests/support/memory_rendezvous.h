// A store of keys and values for ranks that are threads of one process.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/rendezvous.h"

namespace gloo_bypass::test {

class MemoryRendezvous final : public collectives::Rendezvous {
 public:
  Status set(const std::string& key, std::span<const std::byte> value) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    values_[key].assign(value.begin(), value.end());
    changed_.notify_all();
    return {};
  }
  Result<std::vector<std::byte>> get(const std::string& key, std::chrono::milliseconds timeout) override {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); })) {
      return Error{ErrorScope::kDevice, ErrorCode::kTimedOut, "no value for " + key};
    }
    return values_[key];
  }
  Result<bool> has(const std::string& key) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return values_.contains(key);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<std::byte>> values_;
};

}  // namespace gloo_bypass::test
