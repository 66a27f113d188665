// The cache with the kernel's own events: memory is mapped and unmapped under it by several threads. Skipped if the
// kernel has no such events.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/transport/verbs/fake_registration.h"
#include "transport/verbs/registration_cache.h"

namespace gloo_bypass::verbs {
namespace {

using test::FakeRegistration;

constexpr std::size_t kBuffer = 256 * 1024;

std::byte* mapBuffer(void* where = nullptr) {
  void* memory = ::mmap(where, kBuffer, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | (where != nullptr ? MAP_FIXED : 0), -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<std::byte*>(memory);
}

class RegistrationUnmappingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cache_ = std::make_unique<RegistrationCache>(adapter_.api, std::vector{&adapter_.domains[0]}, std::size_t{1} << 30);
    if (!cache_->watching()) GTEST_SKIP() << cache_->whyNotWatching();
  }
  void TearDown() override {
    cache_.reset();
    EXPECT_EQ(adapter_.liveRegions(), 0u);
  }
  const Registration* acquire(const std::byte* data, std::size_t length = kBuffer) {
    auto acquired = cache_->acquire(data, length, RegistrationUse::kLocalWrite);
    if (!acquired) std::abort();
    return acquired.value();
  }

  FakeRegistration adapter_;
  std::unique_ptr<RegistrationCache> cache_;
};

TEST_F(RegistrationUnmappingTest, Acquire_SameBufferManyTimes_RegisteredOnce) {
  std::vector<std::byte> buffer(kBuffer);
  for (int i = 0; i < 1000; ++i) cache_->release(acquire(buffer.data()));
  EXPECT_EQ(cache_->counters().registrations, 1u);
  EXPECT_EQ(cache_->counters().hits, 999u);
}

TEST_F(RegistrationUnmappingTest, Acquire_OtherMemoryAtTheAddress_RegisteredAnew) {
  std::byte* buffer = mapBuffer();
  for (std::uint64_t round = 1; round <= 50; ++round) {
    cache_->release(acquire(buffer));
    cache_->release(acquire(buffer));
    ASSERT_EQ(cache_->counters().registrations, round);
    if (round % 2 == 0) {
      ::munmap(buffer, kBuffer);
      ASSERT_EQ(mapBuffer(buffer), buffer);
    } else {
      mapBuffer(buffer);
    }
  }
  EXPECT_EQ(cache_->counters().invalidations, 49u);
  ::munmap(buffer, kBuffer);
}

TEST_F(RegistrationUnmappingTest, DropUnmapped_AfterMunmap_NothingStaysPinned) {
  std::byte* buffer = mapBuffer();
  cache_->release(acquire(buffer));
  ::munmap(buffer, kBuffer);
  cache_->dropUnmapped();
  EXPECT_EQ(cache_->counters().pinnedBytes, 0u);
}

TEST_F(RegistrationUnmappingTest, Acquire_PartsOfBuffersThatShareAPage_AllHitOnceWarm) {
  std::vector<std::byte> memory(1 << 20);
  constexpr std::size_t kPart = 10'000;  // neighbours share their boundary pages
  for (int round = 0; round < 2; ++round)
    for (std::size_t at = 0; at + kPart <= memory.size(); at += kPart)
      cache_->release(acquire(memory.data() + at, kPart));
  EXPECT_EQ(cache_->counters().misses, memory.size() / kPart);
  EXPECT_EQ(cache_->counters().uncached, 0u);
}

TEST_F(RegistrationUnmappingTest, Acquire_TwoCachesOneBuffer_BothKeepItAndBothHear) {
  RegistrationCache other(adapter_.api, {&adapter_.domains[1]}, std::size_t{1} << 30);
  std::byte* buffer = mapBuffer();
  cache_->release(acquire(buffer));
  for (int i = 0; i < 2; ++i) {
    auto acquired = other.acquire(buffer, kBuffer, RegistrationUse::kRemoteRead);
    ASSERT_TRUE(acquired);
    other.release(acquired.value());
  }
  EXPECT_EQ(other.counters().hits, 1u);
  ::munmap(buffer, kBuffer);
  cache_->dropUnmapped();
  other.dropUnmapped();
  EXPECT_EQ(cache_->counters().pinnedBytes, 0u);
  EXPECT_EQ(other.counters().pinnedBytes, 0u);
}

// free() waits until the event is taken; the thread that takes it must need nothing that its caller holds.
TEST_F(RegistrationUnmappingTest, Free_InsideExclusiveAccessAndAllocator_Returns) {
  std::mutex exclusive;
  std::atomic<bool> stop{false};
  std::thread allocating([&] {
    while (!stop) std::free(std::malloc(64));
  });
  for (int i = 0; i < 200; ++i) {
    const std::lock_guard lock(exclusive);
    auto* buffer = static_cast<std::byte*>(std::malloc(kBuffer));
    std::memset(buffer, 1, kBuffer);
    const auto* registration = acquire(buffer);
    std::free(buffer);  // beneath a registration that is in use, even
    cache_->release(registration);
    cache_->dropUnmapped();
  }
  stop = true;
  allocating.join();
}

// The hard case: an address goes to another thread while the one that unmapped it is still in munmap, before the event
// arrives. A registration must never be older than its mapping.
TEST_F(RegistrationUnmappingTest, Acquire_ManyThreadsMapAndUnmap_NeverOlderThanTheMapping) {
  constexpr int kThreads = 4, kRounds = 400;
  std::mutex exclusive;
  std::atomic<int> stale{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        std::byte* buffer = mapBuffer();
        const std::uint64_t mappedAt = adapter_.tick();
        for (int use = 0; use < 2; ++use) {
          const std::lock_guard lock(exclusive);
          const auto* registration = acquire(buffer);
          if (adapter_.of(registration->regions[0]).stamp < mappedAt) ++stale;
          cache_->release(registration);
        }
        ::munmap(buffer, kBuffer);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stale, 0);
  RecordProperty("hits", std::to_string(cache_->counters().hits));
  RecordProperty("uncached", std::to_string(cache_->counters().uncached));
}

}  // namespace
}  // namespace gloo_bypass::verbs
