// The cache's rules, with a fake adapter and a monitor that the test drives.
#include "transport/verbs/registration_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/transport/verbs/fake_registration.h"

namespace gloo_bypass::verbs {
namespace {

using test::FakeRegistration;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPlenty = std::size_t{1} << 40;
constexpr int kBoth = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;

// Addresses that nothing reads or writes.
std::byte* page(std::size_t number) {
  static void* const reserved =
      ::mmap(nullptr, 16384 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return static_cast<std::byte*>(reserved) + number * kPage;
}

// The ranges that the test reports as unmapped. Shared with the monitor that the cache owns.
struct FakeUnmapping {
  std::deque<UnmapMonitor::Range> ranges;
  bool overflowed = false;
  bool unmappingNow = false;
  bool watches = true;
  std::vector<UnmapMonitor::Range> unwatched;
  std::vector<std::string>* log = nullptr;
};

class FakeMonitor : public UnmapMonitor {
 public:
  explicit FakeMonitor(FakeUnmapping& state) : state_(state) {}
  bool watch(std::byte*, std::size_t) override {
    if (state_.log != nullptr) state_.log->emplace_back("watch");
    return state_.watches;
  }
  void unwatch(std::byte* begin, std::size_t length) override {
    if (state_.log != nullptr) state_.log->emplace_back("unwatch");
    state_.unwatched.push_back({begin, length});
  }
  std::size_t takeUnmapped(Range* ranges, std::size_t capacity, bool* overflowed) override {
    *overflowed = std::exchange(state_.overflowed, false);
    std::size_t taken = 0;
    for (; taken < capacity && !state_.ranges.empty(); state_.ranges.pop_front())
      ranges[taken++] = state_.ranges.front();
    return taken;
  }
  bool anyUnmapped() const override { return !state_.ranges.empty() || state_.overflowed || state_.unmappingNow; }

 private:
  FakeUnmapping& state_;
};

class RegistrationCacheTest : public ::testing::Test {
 protected:
  void make(std::size_t maxBytes = kPlenty, std::vector<ibv_pd*> domains = {},
            ReadRight right = ReadRight::kRegistration) {
    if (domains.empty()) domains = {&adapter_.domains[0]};
    cache_.emplace(adapter_.api, domains, maxBytes,
                   std::unique_ptr<UnmapMonitor>(std::make_unique<FakeMonitor>(unmapping_)), right);
  }
  void makeBlind() {
    const Error reason{ErrorScope::kDevice, ErrorCode::kUnavailable, "no userfaultfd here"};
    cache_.emplace(adapter_.api, std::vector{&adapter_.domains[0]}, kPlenty, reason);
  }
  void SetUp() override { make(); }
  void TearDown() override {
    cache_.reset();
    EXPECT_EQ(adapter_.liveRegions(), 0u);
    EXPECT_EQ(adapter_.unknownDeregistrations(), 0);
  }

  const Registration* acquire(std::size_t firstPage, std::size_t pages,
                              RegistrationUse use = RegistrationUse::kLocalWrite) {
    auto acquired = cache_->acquire(page(firstPage), pages * kPage, use);
    if (!acquired) ADD_FAILURE() << acquired.error().message;
    return acquired ? acquired.value() : nullptr;
  }
  // Acquires and releases: it is cached now.
  void cachePages(std::size_t firstPage, std::size_t pages) { cache_->release(acquire(firstPage, pages)); }
  void unmap(std::size_t firstPage, std::size_t pages) {
    unmapping_.ranges.push_back({page(firstPage), pages * kPage});
  }
  const RegistrationCounters& counters() const { return cache_->counters(); }

  FakeRegistration adapter_;
  FakeUnmapping unmapping_;
  std::optional<RegistrationCache> cache_;
};

// A peer must not reach other bytes in a buffer's pages.
TEST_F(RegistrationCacheTest, Acquire_SomeBytes_NoOthersAreReached) {
  const auto acquired = cache_->acquire(page(3) + 100, kPage, RegistrationUse::kRemoteRead);
  ASSERT_TRUE(acquired);
  ASSERT_EQ(acquired.value()->regions.size(), 1u);
  EXPECT_EQ(adapter_.of(acquired.value()->regions[0]).begin, page(3) + 100);
  EXPECT_EQ(adapter_.of(acquired.value()->regions[0]).length, kPage);
  EXPECT_EQ(counters().pinnedBytes, 2 * kPage);
  cache_->release(acquired.value());
}

TEST_F(RegistrationCacheTest, Unmapped_PageThatABufferBeginsOrEndsIn_ItIsForgotten) {
  for (const std::size_t unmapped : {3u, 4u}) {
    const auto first = cache_->acquire(page(3) + 100, kPage, RegistrationUse::kLocalWrite);
    cache_->release(first.value());
    unmap(unmapped, 1);
    const auto second = cache_->acquire(page(3) + 100, kPage, RegistrationUse::kLocalWrite);
    cache_->release(second.value());
  }
  EXPECT_EQ(counters().invalidations, 2u);
}

TEST_F(RegistrationCacheTest, Evicted_SharesAPageWithAnother_ThatPageStaysWatched) {
  make(4 * kPage);
  const auto kept = cache_->acquire(page(1) + 2000, kPage, RegistrationUse::kLocalWrite);  // pages 1 and 2
  cache_->release(cache_->acquire(page(0), kPage + 2000, RegistrationUse::kLocalWrite).value());
  cache_->release(cache_->acquire(page(2) + 3000, kPage, RegistrationUse::kLocalWrite).value());
  cachePages(20, 3);
  EXPECT_EQ(counters().evictions, 2u);
  ASSERT_EQ(unmapping_.unwatched.size(), 2u);
  EXPECT_EQ(unmapping_.unwatched[0].begin, page(0));
  EXPECT_EQ(unmapping_.unwatched[0].length, kPage);
  EXPECT_EQ(unmapping_.unwatched[1].begin, page(3));
  EXPECT_EQ(unmapping_.unwatched[1].length, kPage);
  cache_->release(kept.value());
}

TEST_F(RegistrationCacheTest, Acquire_SameOrPartAgain_OneRegistration) {
  cachePages(0, 8);
  const auto* whole = acquire(0, 8);
  const auto* part = acquire(5, 2);
  EXPECT_EQ(whole, part);
  EXPECT_EQ(counters().registrations, 1u);
  EXPECT_EQ(counters().hits, 2u);
  EXPECT_EQ(counters().misses, 1u);
  cache_->release(whole);
  cache_->release(part);
  EXPECT_EQ(counters().pinnedBytes, 8 * kPage);
}

TEST_F(RegistrationCacheTest, Acquire_OnlyReceivedInto_PeersMayNotRead) {
  const auto* received = acquire(0, 2, RegistrationUse::kLocalWrite);
  EXPECT_EQ(adapter_.of(received->regions[0]).access, IBV_ACCESS_LOCAL_WRITE);
  cache_->release(received);
}

TEST_F(RegistrationCacheTest, Acquire_ReceivedIntoAndThenSent_OneRegistrationInTheEnd) {
  const auto* received = acquire(1, 2, RegistrationUse::kLocalWrite);
  const auto* sent = acquire(0, 4, RegistrationUse::kRemoteRead);
  EXPECT_EQ(adapter_.of(sent->regions[0]).access, kBoth);
  cache_->release(received);
  EXPECT_EQ(adapter_.liveRegions(), 1u);
  EXPECT_EQ(acquire(1, 2, RegistrationUse::kLocalWrite), sent);
  EXPECT_EQ(acquire(1, 2, RegistrationUse::kRemoteRead), sent);
  for (int i = 0; i < 3; ++i) cache_->release(sent);
  EXPECT_EQ(counters().registrations, 2u);
}

TEST_F(RegistrationCacheTest, Acquire_LargerThanCached_ReplacesIt) {
  cachePages(2, 2);
  cachePages(0, 8);
  EXPECT_EQ(adapter_.liveRegions(), 1u);
  EXPECT_EQ(counters().pinnedBytes, 8 * kPage);
  EXPECT_EQ(counters().peakPinnedBytes, 10 * kPage);
  cachePages(2, 2);
  EXPECT_EQ(counters().hits, 1u);
}

TEST_F(RegistrationCacheTest, Acquire_LargerThanOneInUse_BothLiveUntilRelease) {
  const auto* inner = acquire(2, 2);
  const auto* outer = acquire(0, 8);
  EXPECT_NE(inner, outer);
  EXPECT_TRUE(adapter_.isLive(inner->regions[0]));
  EXPECT_EQ(acquire(2, 1), outer);
  cache_->release(outer);
  EXPECT_EQ(adapter_.liveRegions(), 2u);
  cache_->release(inner);
  EXPECT_EQ(adapter_.liveRegions(), 1u);
  cache_->release(outer);
}

TEST_F(RegistrationCacheTest, Acquire_Overlapping_EachIsFound) {
  cachePages(0, 4);
  cachePages(2, 4);
  cachePages(5, 4);
  EXPECT_EQ(adapter_.liveRegions(), 3u);
  cachePages(1, 3);
  cachePages(3, 3);
  cachePages(6, 3);
  EXPECT_EQ(counters().hits, 3u);
  cachePages(1, 5);
  EXPECT_EQ(counters().misses, 4u);
}

TEST_F(RegistrationCacheTest, Acquire_AfterItsMemoryWasUnmapped_NeverTheOldRegistration) {
  cachePages(0, 4);
  unmap(3, 1);
  cachePages(0, 4);
  EXPECT_EQ(counters().hits, 0u);
  EXPECT_EQ(counters().registrations, 2u);
  EXPECT_EQ(counters().invalidations, 1u);
  EXPECT_EQ(adapter_.liveRegions(), 1u);
}

TEST_F(RegistrationCacheTest, Acquire_NeighbourUnmapped_StillAHit) {
  cachePages(4, 4);
  unmap(0, 4);
  unmap(8, 4);
  cachePages(4, 4);
  EXPECT_EQ(counters().hits, 1u);
  EXPECT_EQ(counters().invalidations, 0u);
}

TEST_F(RegistrationCacheTest, Unmapped_WhileInUse_LivesUntilReleaseAndIsNotReturnedAgain) {
  const auto* old = acquire(0, 4);
  ibv_mr* region = old->regions[0];
  unmap(0, 4);
  const auto* fresh = acquire(0, 4);
  EXPECT_NE(fresh, old);
  EXPECT_TRUE(adapter_.isLive(region));
  cache_->release(old);
  EXPECT_FALSE(adapter_.isLive(region));
  EXPECT_EQ(acquire(0, 4), fresh);
  cache_->release(fresh);
  cache_->release(fresh);
}

TEST_F(RegistrationCacheTest, DropUnmapped_Called_DeregistersWithoutAcquire) {
  cachePages(0, 4);
  cachePages(8, 4);
  for (std::size_t i = 0; i < 200; ++i) unmap(100 + i, 1);
  unmap(0, 1);
  cache_->dropUnmapped();
  EXPECT_EQ(adapter_.liveRegions(), 1u);
  EXPECT_EQ(counters().pinnedBytes, 4 * kPage);
  EXPECT_TRUE(unmapping_.unwatched.empty());  // they may belong to another owner by now
}

TEST_F(RegistrationCacheTest, Unmapped_MoreThanWasNoted_EverythingIsDropped) {
  cachePages(0, 4);
  cachePages(8, 4);
  unmapping_.overflowed = true;
  const auto* fresh = acquire(8, 4);
  EXPECT_EQ(counters().hits, 0u);
  EXPECT_EQ(counters().invalidations, 2u);
  EXPECT_EQ(adapter_.liveRegions(), 1u);
  cache_->release(fresh);
}

// Another thread is in munmap: its addresses may already belong to this caller, and the event has not arrived.
TEST_F(RegistrationCacheTest, Acquire_WhileAnotherUnmaps_CachedIsNotReliedUpon) {
  cachePages(0, 4);
  unmapping_.unmappingNow = true;
  const auto* fresh = acquire(0, 4);
  EXPECT_EQ(counters().hits, 0u);
  EXPECT_EQ(counters().uncached, 1u);
  cache_->release(fresh);
  EXPECT_EQ(adapter_.liveRegions(), 1u);
  unmapping_.unmappingNow = false;
  cachePages(0, 4);
  EXPECT_EQ(counters().hits, 1u);
}

TEST_F(RegistrationCacheTest, Acquire_UnwatchableMemory_DeregisteredAtRelease) {
  unmapping_.watches = false;
  for (int i = 0; i < 2; ++i) {
    const auto* registration = acquire(0, 4);
    EXPECT_EQ(adapter_.liveRegions(), 1u);
    cache_->release(registration);
    EXPECT_EQ(adapter_.liveRegions(), 0u);
  }
  EXPECT_EQ(counters().uncached, 2u);
  EXPECT_EQ(counters().misses, 2u);
  EXPECT_EQ(counters().pinnedBytes, 0u);
}

TEST_F(RegistrationCacheTest, Acquire_ProcessCannotWatch_NothingIsCachedAndItSaysWhy) {
  EXPECT_TRUE(cache_->watching());
  EXPECT_EQ(cache_->whyNotWatching(), "");
  makeBlind();
  EXPECT_FALSE(cache_->watching());
  EXPECT_EQ(cache_->whyNotWatching(), "no userfaultfd here");
  cachePages(0, 4);
  cache_->dropUnmapped();
  EXPECT_EQ(adapter_.liveRegions(), 0u);
  EXPECT_EQ(counters().uncached, 1u);
}

TEST_F(RegistrationCacheTest, Acquire_Miss_WatchesBeforeItRegisters) {
  unmapping_.log = &adapter_.log;
  cachePages(0, 4);
  EXPECT_THAT(adapter_.log, ElementsAre("watch", "register"));
}

TEST_F(RegistrationCacheTest, Release_BeyondBound_LongestUnusedGoes) {
  make(8 * kPage);
  cachePages(0, 4);
  cachePages(10, 4);
  cachePages(0, 4);
  cachePages(20, 4);
  EXPECT_EQ(counters().evictions, 1u);
  EXPECT_EQ(counters().pinnedBytes, 8 * kPage);
  cachePages(0, 4);
  EXPECT_EQ(counters().hits, 2u);
  cachePages(10, 4);
  EXPECT_EQ(counters().misses, 4u);
}

TEST_F(RegistrationCacheTest, Release_LargerThanBound_NotKept) {
  make(2 * kPage);
  cachePages(0, 4);
  EXPECT_EQ(adapter_.liveRegions(), 0u);
}

TEST_F(RegistrationCacheTest, Acquire_BeyondBound_WhatIsInUseStays) {
  make(0);
  const auto* first = acquire(0, 4);
  const auto* second = acquire(10, 4);
  EXPECT_EQ(adapter_.liveRegions(), 2u);
  EXPECT_EQ(acquire(0, 4), first);
  cache_->release(first);
  cache_->release(second);
  EXPECT_TRUE(adapter_.isLive(first->regions[0]));
  cache_->release(first);
}

TEST_F(RegistrationCacheTest, Acquire_ManySmall_EntriesAreBounded) {
  for (std::size_t i = 0; i < RegistrationCache::kMaxEntries + 10; ++i) cachePages(2 * i, 1);
  EXPECT_EQ(adapter_.liveRegions(), RegistrationCache::kMaxEntries);
  EXPECT_EQ(counters().evictions, 10u);
}

TEST_F(RegistrationCacheTest, Evicted_OverlappedByAnother_OnlyItsOwnPagesAreUnwatched) {
  make(10 * kPage);
  const auto* inUse = acquire(2, 4);  // pages 2 to 5
  cachePages(0, 4);                   // pages 0 to 3
  cachePages(5, 3);                   // pages 5 to 7
  cachePages(20, 4);
  EXPECT_EQ(counters().evictions, 1u);
  ASSERT_EQ(unmapping_.unwatched.size(), 1u);
  EXPECT_EQ(unmapping_.unwatched[0].begin, page(0));
  EXPECT_EQ(unmapping_.unwatched[0].length, 2 * kPage);
  cachePages(30, 6);
  EXPECT_EQ(counters().evictions, 2u);
  ASSERT_EQ(unmapping_.unwatched.size(), 2u);
  EXPECT_EQ(unmapping_.unwatched[1].begin, page(6));
  EXPECT_EQ(unmapping_.unwatched[1].length, 2 * kPage);
  cache_->release(inUse);
}

TEST_F(RegistrationCacheTest, Acquire_MemoryCannotBeLocked_UnusedIsGivenBackFirst) {
  adapter_.fail = [this](ibv_pd*, std::byte*, std::size_t length, int) {
    return adapter_.liveBytes() + length > 10 * kPage ? ENOMEM : 0;
  };
  cachePages(0, 4);
  cachePages(10, 4);
  const auto* another = acquire(20, 4);
  EXPECT_EQ(adapter_.liveBytes(), 8 * kPage);
  EXPECT_EQ(counters().evictions, 1u);
  EXPECT_EQ(acquire(10, 4)->begin, page(10));
  EXPECT_EQ(counters().hits, 1u);  // the one longest unused went
  cache_->release(another);
}

// The same buffer for another use, which pins its pages twice.
TEST_F(RegistrationCacheTest, Acquire_WhatGivesWayHasTheSamePages_TheyStayWatched) {
  adapter_.fail = [this](ibv_pd*, std::byte*, std::size_t length, int) {
    return adapter_.liveBytes() + length > 6 * kPage ? ENOMEM : 0;
  };
  cachePages(0, 4);
  unmapping_.log = &adapter_.log;
  cache_->release(acquire(0, 4, RegistrationUse::kRemoteRead));
  EXPECT_EQ(counters().evictions, 1u);
  const auto& log = adapter_.log;
  const auto lastOf = [&log](const std::string& what) { return std::find(log.rbegin(), log.rend(), what); };
  ASSERT_NE(lastOf("unwatch"), log.rend());
  EXPECT_LT(lastOf("register"), lastOf("watch")) << "registered first";
  EXPECT_LT(lastOf("watch"), lastOf("unwatch")) << "not watched any more";
  unmap(0, 4);
  cachePages(0, 4);
  EXPECT_EQ(counters().invalidations, 1u);
}

TEST_F(RegistrationCacheTest, Acquire_MemoryCannotBeLockedAtAll_ErrorNamesLimitNeedAndRemedy) {
  adapter_.fail = [](ibv_pd*, std::byte*, std::size_t length, int) { return length > 4 * kPage ? ENOMEM : 0; };
  cachePages(0, 4);
  const auto* inUse = acquire(10, 4);
  const auto refused = cache_->acquire(page(20), 256 * kPage, RegistrationUse::kLocalWrite);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kExhausted);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("RLIMIT_MEMLOCK"), HasSubstr("1.0 MiB")));
  EXPECT_EQ(adapter_.liveRegions(), 1u);
  EXPECT_EQ(counters().pinnedBytes, 4 * kPage);
  cache_->release(inUse);
  cachePages(0, 4);
}

TEST_F(RegistrationCacheTest, Acquire_ReadOnlyMemory_RegisteredForReadingOnly) {
  bool writable = false;
  adapter_.fail = [&](ibv_pd*, std::byte*, std::size_t, int access) {
    return !writable && (access & IBV_ACCESS_LOCAL_WRITE) != 0 ? EFAULT : 0;
  };
  const auto* sent = acquire(0, 4, RegistrationUse::kRemoteRead);
  EXPECT_EQ(adapter_.of(sent->regions[0]).access, IBV_ACCESS_REMOTE_READ);
  EXPECT_EQ(acquire(1, 2, RegistrationUse::kRemoteRead), sent);
  const auto refused = cache_->acquire(page(0), kPage, RegistrationUse::kLocalWrite);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);

  writable = true;
  const auto* received = acquire(0, 4, RegistrationUse::kLocalWrite);
  EXPECT_NE(received, sent);
  EXPECT_EQ(adapter_.of(received->regions[0]).access, IBV_ACCESS_LOCAL_WRITE);
  EXPECT_EQ(acquire(0, 4, RegistrationUse::kRemoteRead), sent);
  for (const auto* registration : {sent, sent, sent, received}) cache_->release(registration);
  EXPECT_EQ(adapter_.liveRegions(), 2u);
}

TEST_F(RegistrationCacheTest, ReadByWindows_NoRegistrationLetsAPeerRead) {
  make(kPlenty, {}, ReadRight::kWindow);
  const auto* sent = acquire(0, 4, RegistrationUse::kRemoteRead);
  EXPECT_EQ(adapter_.of(sent->regions[0]).access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  EXPECT_TRUE(sent->needsWindow);
  const auto* received = acquire(10, 4, RegistrationUse::kLocalWrite);
  EXPECT_EQ(adapter_.of(received->regions[0]).access, IBV_ACCESS_LOCAL_WRITE);
  for (const auto* registration : {sent, received}) cache_->release(registration);
  EXPECT_EQ(adapter_.liveRegions(), 2u) << "kept";
}

TEST_F(RegistrationCacheTest, ReadByWindowsAndReadOnlyMemory_PeersReadForOneMessage) {
  make(kPlenty, {}, ReadRight::kWindow);
  adapter_.fail = [](ibv_pd*, std::byte*, std::size_t, int access) {
    return (access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)) != 0 ? EFAULT : 0;
  };
  const auto* one = acquire(0, 4, RegistrationUse::kRemoteRead);
  EXPECT_EQ(adapter_.of(one->regions[0]).access, IBV_ACCESS_REMOTE_READ);
  EXPECT_FALSE(one->needsWindow);
  const auto* other = acquire(0, 4, RegistrationUse::kRemoteRead);
  EXPECT_NE(other, one);
  cache_->release(one);
  EXPECT_EQ(adapter_.liveRegions(), 1u);
  cache_->release(other);
  EXPECT_EQ(adapter_.liveRegions(), 0u);
  EXPECT_EQ(unmapping_.unwatched.size(), 2u);
}

TEST_F(RegistrationCacheTest, ReadByWindowsAndAnotherError_NothingIsReadable) {
  for (const int error : {EACCES, EPERM, EINVAL, EOPNOTSUPP, EIO}) {
    make(kPlenty, {}, ReadRight::kWindow);
    adapter_.fail = [error](ibv_pd*, std::byte*, std::size_t, int access) {
      return (access & IBV_ACCESS_MW_BIND) != 0 ? error : 0;
    };
    const auto refused = cache_->acquire(page(0), kPage, RegistrationUse::kRemoteRead);
    ASSERT_FALSE(refused) << error;
    EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
    EXPECT_THAT(refused.error().message, HasSubstr(std::strerror(error)));
    EXPECT_EQ(adapter_.liveRegions(), 0u);
  }
}

TEST_F(RegistrationCacheTest, Acquire_MemoryNotMapped_ErrorAndNothingLeft) {
  adapter_.fail = [](ibv_pd*, std::byte*, std::size_t, int) { return EFAULT; };
  for (const auto use : {RegistrationUse::kLocalWrite, RegistrationUse::kRemoteRead}) {
    const auto refused = cache_->acquire(page(0), kPage, use);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(counters().pinnedBytes, 0u);
  EXPECT_EQ(unmapping_.unwatched.size(), 2u);
}

// Linux returns ENOMEM for it; that is no reason to evict anything.
TEST_F(RegistrationCacheTest, Acquire_NotMappedButKernelSaysNoMemory_ErrorSaysNotMappedAndNothingIsEvicted) {
  cachePages(0, 4);
  auto* hole = static_cast<std::byte*>(::mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ::munmap(hole, kPage);
  adapter_.fail = [](ibv_pd*, std::byte*, std::size_t, int) { return ENOMEM; };
  const auto refused = cache_->acquire(hole, kPage, RegistrationUse::kLocalWrite);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("not mapped"));
  EXPECT_EQ(counters().evictions, 0u);
}

TEST_F(RegistrationCacheTest, Acquire_BeyondAddressSpace_Refused) {
  const auto* last = reinterpret_cast<const std::byte*>(UINTPTR_MAX - 10);
  const auto refused = cache_->acquire(last, 100, RegistrationUse::kRemoteRead);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(RegistrationCacheTest, Acquire_TwoRails_RegisteredOnBothInTheirOrder) {
  make(kPlenty, {&adapter_.domains[0], &adapter_.domains[1]});
  const auto* registration = acquire(0, 4);
  ASSERT_EQ(registration->regions.size(), 2u);
  EXPECT_EQ(registration->regions[0]->pd, &adapter_.domains[0]);
  EXPECT_EQ(registration->regions[1]->pd, &adapter_.domains[1]);
  EXPECT_EQ(counters().registrations, 1u);
  EXPECT_EQ(counters().pinnedBytes, 4 * kPage);
  cache_->release(registration);
}

TEST_F(RegistrationCacheTest, Acquire_SecondRailRefuses_NoneIsLeft) {
  make(kPlenty, {&adapter_.domains[0], &adapter_.domains[1]});
  adapter_.fail = [this](ibv_pd* domain, std::byte*, std::size_t, int) {
    return domain == &adapter_.domains[1] ? EINVAL : 0;
  };
  const auto refused = cache_->acquire(page(0), kPage, RegistrationUse::kLocalWrite);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(adapter_.liveRegions(), 0u);
}

// Any order of acquires, releases and unmappings: never a registration from before an unmapping of its pages, and the
// bounds hold.
TEST_F(RegistrationCacheTest, AnyOrder_Random_NeverStaleAndWithinBounds) {
  constexpr std::size_t kPages = 40, kBound = 25;
  // With more of them nearly every range is in use, and nothing is left to evict.
  constexpr std::size_t kMostHeld = 8;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto upTo = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n)(random); };
  make(kBound * kPage);
  std::vector<std::uint64_t> unmappedAt(kPages, 0);
  std::vector<const Registration*> held;
  std::size_t heldBytesAtMost = 0;
  for (int step = 0; step < 20000; ++step) {
    const std::size_t first = upTo(kPages - 1), count = 1 + upTo(kPages - 1 - first);
    const std::size_t action = upTo(9);
    if (action < 5 && held.size() < kMostHeld) {
      unmapping_.watches = upTo(9) != 0;
      unmapping_.unmappingNow = upTo(19) == 0;
      const auto use = upTo(1) == 0 ? RegistrationUse::kRemoteRead : RegistrationUse::kLocalWrite;
      // Some begin and end within a page.
      std::byte *const begin = page(first) + 100 * upTo(2), *const end = page(first + count) - 100 * upTo(2);
      const auto acquired = cache_->acquire(begin, static_cast<std::size_t>(end - begin), use);
      ASSERT_TRUE(acquired);
      const auto* registration = acquired.value();
      ASSERT_LE(registration->begin, begin);
      ASSERT_GE(registration->begin + registration->length, end);
      const int needed = use == RegistrationUse::kRemoteRead ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_LOCAL_WRITE;
      ASSERT_NE(adapter_.of(registration->regions.at(0)).access & needed, 0);
      const auto& region = adapter_.of(registration->regions.at(0));
      for (std::size_t i = first; i < first + count; ++i) ASSERT_GT(region.stamp, unmappedAt[i]);
      held.push_back(registration);
    } else if (action < 9 && !held.empty()) {
      const std::size_t which = upTo(held.size() - 1);
      cache_->release(held[which]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
    } else if (action == 9) {
      for (std::size_t i = first; i < first + count; ++i) unmappedAt[i] = adapter_.tick();
      if (upTo(19) == 0)
        unmapping_.overflowed = true;
      else
        unmap(first, count);
    }
    heldBytesAtMost = 0;
    for (const auto* registration : held) heldBytesAtMost += registration->length + 2 * kPage;
    ASSERT_EQ(counters().pinnedBytes, adapter_.liveBytes());
    ASSERT_LE(counters().pinnedBytes, heldBytesAtMost + kBound * kPage);
  }
  for (const auto* registration : held) cache_->release(registration);
  EXPECT_GT(counters().hits, 0u);
  EXPECT_GT(counters().invalidations, 0u);
  EXPECT_GT(counters().evictions, 0u);
}

}  // namespace
}  // namespace gloo_bypass::verbs
