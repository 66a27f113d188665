// ibv_reg_mr and ibv_dereg_mr without an adapter: records registrations, and fails on request.
#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "transport/verbs/verbs_api.h"

namespace gloo_bypass::test {

struct FakeRegion {
  std::byte* begin;
  std::size_t length;
  int access;
  std::uint64_t stamp;  // of the clock, when it was registered
};

// One a test. Thread: any.
class FakeRegistration {
 public:
  FakeRegistration() {
    current = this;
    api.registerMemory = [](ibv_pd* domain, void* address, std::size_t length, int access) {
      return current->registerMemory(domain, static_cast<std::byte*>(address), length, access);
    };
    api.deregisterMemory = [](ibv_mr* region) { return current->deregister(region); };
  }
  ~FakeRegistration() {
    for (const auto& [region, unused] : live_) delete region;
    current = nullptr;
  }
  FakeRegistration(const FakeRegistration&) = delete;
  FakeRegistration& operator=(const FakeRegistration&) = delete;

  verbs::VerbsApi api;
  ibv_pd domains[2] = {};
  // Called before each registration: 0, or the errno to fail with.
  std::function<int(ibv_pd*, std::byte*, std::size_t, int access)> fail;
  std::vector<std::string> log;  // "register", "deregister"; a test may add its own

  std::uint64_t tick() {
    const std::lock_guard lock(mutex_);
    return ++clock_;
  }
  std::size_t liveRegions() const { return live_.size(); }
  // In whole pages, as they are pinned.
  std::size_t liveBytes() const {
    constexpr std::uintptr_t kPage = 4096;
    std::size_t bytes = 0;
    for (const auto& [region, what] : live_) {
      const auto begin = reinterpret_cast<std::uintptr_t>(what.begin);
      bytes += (begin + what.length + kPage - 1) / kPage * kPage - begin / kPage * kPage;
    }
    return bytes;
  }
  bool isLive(ibv_mr* region) const { return live_.count(region) != 0; }
  const FakeRegion& of(ibv_mr* region) const { return live_.at(region); }
  int unknownDeregistrations() const { return unknown_; }

 private:
  inline static FakeRegistration* current = nullptr;

  ibv_mr* registerMemory(ibv_pd* domain, std::byte* begin, std::size_t length, int access) {
    const std::lock_guard lock(mutex_);
    if (const int error = fail ? fail(domain, begin, length, access) : 0; error != 0) {
      errno = error;
      return nullptr;
    }
    log.emplace_back("register");
    auto* region = new ibv_mr{};
    region->addr = begin;
    region->length = length;
    region->pd = domain;
    live_[region] = {begin, length, access, ++clock_};
    return region;
  }
  int deregister(ibv_mr* region) {
    const std::lock_guard lock(mutex_);
    if (live_.erase(region) == 0) {
      ++unknown_;
      return EINVAL;
    }
    log.emplace_back("deregister");
    delete region;
    return 0;
  }

  mutable std::mutex mutex_;
  std::map<ibv_mr*, FakeRegion> live_;
  std::uint64_t clock_ = 0;
  int unknown_ = 0;
};

}  // namespace gloo_bypass::test
