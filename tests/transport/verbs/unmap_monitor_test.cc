// The kernel's userfaultfd events, for real. Skipped, with the reason, if there are none.
#include "transport/verbs/unmap_monitor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/base/file_descriptor.h"

namespace gloo_bypass::verbs {
namespace {

const std::size_t kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

std::byte* mapMemory(std::size_t length, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int descriptor = -1,
                     int protection = PROT_READ | PROT_WRITE) {
  void* memory = ::mmap(nullptr, length, protection, flags, descriptor, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// True: [begin, begin + length) is within one of the unmapped ranges.
bool tookUnmapped(UnmapMonitor& monitor, const std::byte* begin, std::size_t length) {
  UnmapMonitor::Range ranges[64];
  bool found = false;
  for (std::size_t taken = 64; taken == 64;) {
    bool overflowed = false;
    taken = monitor.takeUnmapped(ranges, 64, &overflowed);
    if (overflowed) return true;
    for (std::size_t i = 0; i < taken; ++i)
      found |= ranges[i].begin <= begin && begin + length <= ranges[i].begin + ranges[i].length;
  }
  return found;
}

// The result of a child, as its exit status: 0 for true.
template <typename Function>
bool inChild(Function function) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(function() ? 0 : 1);
  int status = -1;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

class UnmapMonitorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = UnmapMonitor::make();
    if (!made) GTEST_SKIP() << made.error().message;
    monitor_ = std::move(made).value();
  }
  std::unique_ptr<UnmapMonitor> monitor_;
};

TEST_F(UnmapMonitorTest, Munmap_WatchedPages_NotedOnceItReturned) {
  std::byte* memory = mapMemory(8 * kPage);
  ASSERT_TRUE(monitor_->watch(memory, 8 * kPage));
  EXPECT_FALSE(monitor_->anyUnmapped());
  ::munmap(memory + 2 * kPage, 3 * kPage);
  EXPECT_TRUE(monitor_->anyUnmapped());

  UnmapMonitor::Range range;
  bool overflowed = true;
  ASSERT_EQ(monitor_->takeUnmapped(&range, 1, &overflowed), 1u);
  EXPECT_FALSE(overflowed);
  EXPECT_EQ(range.begin, memory + 2 * kPage);
  EXPECT_EQ(range.length, 3 * kPage);
  EXPECT_FALSE(monitor_->anyUnmapped());
  // Not the hole: another thread's memory may be there by now.
  ::munmap(memory, 2 * kPage);
  ::munmap(memory + 5 * kPage, 3 * kPage);
  EXPECT_TRUE(tookUnmapped(*monitor_, memory, kPage));
}

TEST_F(UnmapMonitorTest, Munmap_PagesOnceWatched_NotNoted) {
  std::byte* memory = mapMemory(4 * kPage);
  ASSERT_TRUE(monitor_->watch(memory, 4 * kPage));
  monitor_->unwatch(memory, 4 * kPage);
  ::munmap(memory, 4 * kPage);
  EXPECT_FALSE(monitor_->anyUnmapped());
}

TEST_F(UnmapMonitorTest, Watch_Twice_OneUnmappingIsHeard) {
  std::byte* memory = mapMemory(4 * kPage);
  ASSERT_TRUE(monitor_->watch(memory, 4 * kPage));
  ASSERT_TRUE(monitor_->watch(memory + kPage, kPage));
  ::munmap(memory, 4 * kPage);
  EXPECT_TRUE(tookUnmapped(*monitor_, memory, 4 * kPage));
}

TEST_F(UnmapMonitorTest, Watch_AdjacentRanges_OneMunmapNotesBoth) {
  std::byte* memory = mapMemory(6 * kPage);
  ASSERT_TRUE(monitor_->watch(memory, 2 * kPage));
  ASSERT_TRUE(monitor_->watch(memory + 2 * kPage, 2 * kPage));
  ::munmap(memory, 6 * kPage);
  EXPECT_TRUE(tookUnmapped(*monitor_, memory, 4 * kPage));
}

TEST_F(UnmapMonitorTest, Mremap_Moved_OldPagesNoted) {
  std::byte* memory = mapMemory(4 * kPage);
  ASSERT_TRUE(monitor_->watch(memory, 4 * kPage));
  void* target = mapMemory(64 * kPage);
  void* moved = ::mremap(memory, 4 * kPage, 64 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, target);
  ASSERT_EQ(moved, target);
  EXPECT_TRUE(tookUnmapped(*monitor_, memory, 4 * kPage));
  ::munmap(moved, 64 * kPage);
}

TEST_F(UnmapMonitorTest, Mremap_Shrunk_TailNoted) {
  std::byte* memory = mapMemory(4 * kPage);
  ASSERT_TRUE(monitor_->watch(memory, 4 * kPage));
  ASSERT_EQ(::mremap(memory, 4 * kPage, kPage, 0), memory);
  EXPECT_TRUE(tookUnmapped(*monitor_, memory + kPage, 3 * kPage));
  ::munmap(memory, kPage);
}

TEST_F(UnmapMonitorTest, Madvise_PagesThrownAway_Noted) {
  std::byte* memory = mapMemory(4 * kPage);
  std::memset(memory, 1, 4 * kPage);
  ASSERT_TRUE(monitor_->watch(memory, 4 * kPage));
  ::madvise(memory + kPage, kPage, MADV_DONTNEED);
  EXPECT_TRUE(tookUnmapped(*monitor_, memory + kPage, kPage));
  ::madvise(memory + 2 * kPage, kPage, MADV_FREE);
  EXPECT_TRUE(tookUnmapped(*monitor_, memory + 2 * kPage, kPage));
  ::munmap(memory, 4 * kPage);
}

TEST_F(UnmapMonitorTest, Mmap_OverWatchedPages_Noted) {
  std::byte* memory = mapMemory(4 * kPage);
  ASSERT_TRUE(monitor_->watch(memory, 4 * kPage));
  ASSERT_EQ(::mmap(memory, 2 * kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), memory);
  EXPECT_TRUE(tookUnmapped(*monitor_, memory, 2 * kPage));
  ::munmap(memory, 4 * kPage);
}

TEST_F(UnmapMonitorTest, Brk_HeapTrimmed_Noted) {
  constexpr std::intptr_t kGrowth = 1 << 20;
  void* before = ::sbrk(kGrowth);  // nothing between the two calls may allocate
  const auto whole = (reinterpret_cast<std::uintptr_t>(before) + kPage - 1) & ~(kPage - 1);
  auto* memory = reinterpret_cast<std::byte*>(whole);
  const bool watched = monitor_->watch(memory, kGrowth / 2);
  ::sbrk(-kGrowth);
  ASSERT_TRUE(watched);
  EXPECT_TRUE(tookUnmapped(*monitor_, memory, kGrowth / 2));
}

TEST_F(UnmapMonitorTest, Munmap_PartOfTransparentHugePage_Noted) {
  constexpr std::size_t kHuge = 2 << 20;
  std::byte* memory = mapMemory(4 * kHuge);
  auto* huge = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory) + kHuge - 1) & ~(kHuge - 1));
  ::madvise(huge, 2 * kHuge, MADV_HUGEPAGE);
  std::memset(huge, 1, 2 * kHuge);
  ASSERT_TRUE(monitor_->watch(huge + kPage, 3 * kPage));
  ::madvise(huge + kPage, kPage, MADV_DONTNEED);
  EXPECT_TRUE(tookUnmapped(*monitor_, huge + kPage, kPage));
  ::munmap(memory, 4 * kHuge);
  EXPECT_TRUE(tookUnmapped(*monitor_, huge + 2 * kPage, 2 * kPage));
}

TEST_F(UnmapMonitorTest, Munmap_SharedMemory_Noted) {
  const FileDescriptor file(::memfd_create("shared", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(4 * kPage)), 0);
  std::byte* memory = mapMemory(4 * kPage, MAP_SHARED, file.get());
  if (!monitor_->watch(memory, 4 * kPage)) GTEST_SKIP() << "this kernel cannot watch shared memory (Linux 5.19 can)";
  ::munmap(memory, 4 * kPage);
  EXPECT_TRUE(tookUnmapped(*monitor_, memory, 4 * kPage));
}

TEST_F(UnmapMonitorTest, Munmap_HugePages_NotedIfWatchedWhole) {
  constexpr std::size_t kHuge = 2 << 20;
  std::byte* memory = mapMemory(2 * kHuge, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB);
  if (memory == nullptr) GTEST_SKIP() << "no huge pages are reserved (vm.nr_hugepages)";
  EXPECT_FALSE(monitor_->watch(memory + kPage, kPage));
  ASSERT_TRUE(monitor_->watch(memory, kHuge));
  ::munmap(memory, kHuge);
  EXPECT_TRUE(tookUnmapped(*monitor_, memory, kHuge));
  ::munmap(memory + kHuge, kHuge);
}

TEST_F(UnmapMonitorTest, Watch_FileMapping_Refused) {
  const FileDescriptor file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  std::byte* memory = mapMemory(kPage, MAP_PRIVATE, file.get(), PROT_READ);
  ASSERT_NE(memory, nullptr);
  EXPECT_FALSE(monitor_->watch(memory, kPage));
  ::munmap(memory, kPage);
}

TEST_F(UnmapMonitorTest, Watch_NothingMapped_Refused) {
  std::byte* memory = mapMemory(kPage);
  ::munmap(memory, kPage);
  EXPECT_FALSE(monitor_->watch(memory, kPage));
}

TEST_F(UnmapMonitorTest, Watch_AnothersPages_Refused) {
  const FileDescriptor other(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1)));
  if (!other) GTEST_SKIP() << "userfaultfd: " << std::strerror(errno);
  uffdio_api api{};
  api.api = UFFD_API;
  ASSERT_EQ(::ioctl(other.get(), UFFDIO_API, &api), 0);
  std::byte* memory = mapMemory(2 * kPage);
  uffdio_register request{};
  request.range = {reinterpret_cast<std::uintptr_t>(memory), kPage};
  request.mode = UFFDIO_REGISTER_MODE_WP;
  ASSERT_EQ(::ioctl(other.get(), UFFDIO_REGISTER, &request), 0);
  EXPECT_FALSE(monitor_->watch(memory, 2 * kPage));
  ::munmap(memory, 2 * kPage);
}

TEST_F(UnmapMonitorTest, Take_MoreThanCanBeNoted_SaysSo) {
  constexpr std::size_t kPieces = 1100;
  std::byte* memory = mapMemory(2 * kPieces * kPage);
  ASSERT_TRUE(monitor_->watch(memory, 2 * kPieces * kPage));
  for (std::size_t i = 0; i < kPieces; ++i) ::munmap(memory + 2 * i * kPage, kPage);
  UnmapMonitor::Range range;
  bool overflowed = false;
  monitor_->takeUnmapped(&range, 1, &overflowed);
  EXPECT_TRUE(overflowed);
  EXPECT_FALSE(monitor_->anyUnmapped());
  monitor_->takeUnmapped(&range, 1, &overflowed);
  EXPECT_FALSE(overflowed);
  for (std::size_t i = 0; i < kPieces; ++i) ::munmap(memory + (2 * i + 1) * kPage, kPage);
}

TEST_F(UnmapMonitorTest, Munmap_TwoMonitorsOnOnePage_BothHear) {
  auto second = UnmapMonitor::make();
  ASSERT_TRUE(second);
  std::byte* memory = mapMemory(kPage);
  ASSERT_TRUE(monitor_->watch(memory, kPage));
  ASSERT_TRUE(second.value()->watch(memory, kPage));
  monitor_->unwatch(memory, kPage);
  ::munmap(memory, kPage);
  EXPECT_TRUE(tookUnmapped(*second.value(), memory, kPage));
  EXPECT_TRUE(tookUnmapped(*monitor_, memory, kPage));
}

TEST_F(UnmapMonitorTest, Munmap_AfterMonitorIsGone_Returns) {
  std::byte* memory = mapMemory(kPage);
  ASSERT_TRUE(monitor_->watch(memory, kPage));
  monitor_.reset();
  EXPECT_EQ(::munmap(memory, kPage), 0);
}

TEST_F(UnmapMonitorTest, Fork_ChildOfWatchingProcess_WatchesNothingAndDisturbsNobody) {
  std::byte* memory = mapMemory(2 * kPage);
  ASSERT_TRUE(monitor_->watch(memory, 2 * kPage));
  EXPECT_TRUE(inChild([&] {
    bool overflowed = false;
    const bool blind = !monitor_->watch(memory, kPage) && monitor_->anyUnmapped() &&
                       monitor_->takeUnmapped(nullptr, 0, &overflowed) == 0 && overflowed;
    const bool unmapped = ::munmap(memory, 2 * kPage) == 0;
    monitor_.reset();
    return blind && unmapped;
  }));
  EXPECT_FALSE(monitor_->anyUnmapped());
  ::munmap(memory, 2 * kPage);
  EXPECT_TRUE(tookUnmapped(*monitor_, memory, 2 * kPage));
}

#if !defined(__SANITIZE_THREAD__)  // it allows no thread in a child of a threaded program
TEST_F(UnmapMonitorTest, Fork_ChildMakesItsOwn_ChildHearsOfItsUnmapping) {
  EXPECT_TRUE(inChild([&] {
    auto own = UnmapMonitor::make();
    std::byte* memory = mapMemory(kPage);
    if (!own || !own.value()->watch(memory, kPage)) return false;
    ::munmap(memory, kPage);
    return tookUnmapped(*own.value(), memory, kPage);
  }));
  EXPECT_FALSE(monitor_->anyUnmapped());
}

TEST_F(UnmapMonitorTest, Make_UnprivilegedUser_Watches) {
  if (::geteuid() != 0) GTEST_SKIP() << "this test runs as an unprivileged user already";
  EXPECT_TRUE(inChild([] {
    if (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0) return false;
    auto own = UnmapMonitor::make();
    std::byte* memory = mapMemory(kPage);
    if (!own || !own.value()->watch(memory, kPage)) return false;
    ::munmap(memory, kPage);
    return tookUnmapped(*own.value(), memory, kPage);
  }));
}
#endif

TEST_F(UnmapMonitorTest, Thread_OfMonitor_BlocksEverySignal) {
  bool found = false;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::string line, name, blocked;
    while (std::getline(status, line)) {
      if (line.rfind("Name:", 0) == 0) name = line.substr(6);
      if (line.rfind("SigBlk:", 0) == 0) blocked = line.substr(8);
    }
    if (name != "gloo-unmap") continue;
    found = true;
    // All but SIGKILL and SIGSTOP, which cannot be, and the two that the C library keeps for itself.
    EXPECT_EQ(std::stoull(blocked, nullptr, 16) | 0x180040100, 0xffffffffffffffff) << blocked;
  }
  EXPECT_TRUE(found);
}

// Each thread finds its own unmapping noted as soon as munmap has returned, however many unmap at once.
TEST_F(UnmapMonitorTest, Munmap_ManyThreads_EachIsNotedOnceItReturned) {
  constexpr int kThreads = 4, kRounds = 500;
  std::mutex exclusive;
  std::vector<std::byte*> heard;  // and not claimed by the thread that unmapped it; two may use an address in turn
  std::vector<std::thread> threads;
  int missed = 0;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const std::size_t length = static_cast<std::size_t>(t + 1) * kPage;
      for (int round = 0; round < kRounds; ++round) {
        std::byte* memory = mapMemory(length);
        if (!monitor_->watch(memory, length)) std::abort();
        ::munmap(memory, length);
        const std::lock_guard lock(exclusive);
        UnmapMonitor::Range ranges[256];
        bool overflowed = false;
        const std::size_t taken = monitor_->takeUnmapped(ranges, 256, &overflowed);
        for (std::size_t i = 0; i < taken; ++i) heard.push_back(ranges[i].begin);
        const auto own = std::find(heard.begin(), heard.end(), memory);
        if (own == heard.end())
          ++missed;
        else
          heard.erase(own);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(missed, 0);
}

}  // namespace
}  // namespace gloo_bypass::verbs
