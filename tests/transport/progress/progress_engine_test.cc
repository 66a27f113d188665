#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "transport/base/forked_child.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// block() returns by itself after this long, so that a lost wake-up shows.
constexpr seconds kLostWakeUp{15};

// Any thread adds arrivals; poll() moves them to `seen`.
class FakePort final : public Pollable {
 public:
  void arrive(int count = 1) {
    arrived_.fetch_add(count, std::memory_order_seq_cst);
    wake();
  }

  bool poll(TimePoint) noexcept override {
    polls.fetch_add(1, std::memory_order_relaxed);
    EXPECT_FALSE(inside_.exchange(true)) << "two threads in poll()";
    const int count = arrived_.exchange(0, std::memory_order_seq_cst);
    seen += count;
    inside_ = false;
    disturbed_ = flooded.load() && count == 0;
    return count > 0;
  }
  bool disturbed() const noexcept override { return disturbed_; }
  void flush(TimePoint) noexcept override { ++flushes; }
  TimePoint nextDeadline() const noexcept override { return kNever; }
  Duration patience() const noexcept override {
    if (duringRests > 0) {
      --duringRests;
      arrived_.fetch_add(1, std::memory_order_seq_cst);
    }
    return patient;
  }
  void drivenBy(bool waiter) noexcept override { (waiter ? waiterDrove : engineDrove).store(true); }
  void armWakeup() noexcept override {
    std::lock_guard<std::mutex> lock(mutex_);
    armed_ = true;
    woken_ = false;
  }
  void disarmWakeup() noexcept override {
    std::lock_guard<std::mutex> lock(mutex_);
    armed_ = false;
  }
  void block(Duration timeout) noexcept override {
    std::unique_lock<std::mutex> lock(mutex_);
    blocks.fetch_add(1);
    if (flooded) return;  // the next datagram is here
    timeout = std::max(timeout, shortestBlock);
    if (!condition_.wait_for(lock, timeout, [this] { return woken_ || !armed_; })) timeouts.fetch_add(1);
  }
  void wake() noexcept override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!armed_) return;
    woken_ = true;
    condition_.notify_all();
  }

  // For tests that count time-outs: the engine's own bound on block() must not pass on a machine that stands still for
  // a while.
  Duration shortestBlock{0};
  std::atomic<bool> flooded{false};  // in each round strangers' data has arrived
  Duration patient{0};
  mutable int duringRests = 0;  // arrivals to come, one in each rest; nothing wakes for them
  int seen = 0;                 // under exclusive access
  int flushes = 0;
  std::atomic<int> polls{0}, blocks{0}, timeouts{0};
  std::atomic<bool> waiterDrove{false}, engineDrove{false};

 private:
  mutable std::atomic<int> arrived_{0};
  std::atomic<bool> inside_{false};
  bool disturbed_ = false;
  std::mutex mutex_;
  std::condition_variable condition_;
  bool armed_ = false, woken_ = false;
};

// Over a slow path: data within the patience after the first is taken with it, without further wake-ups.
TEST(ProgressEngine_WaitUntil, PatientTarget_TakesWhatArrivesTogether) {
  constexpr int kArrivals = 20;
  FakePort port;
  port.shortestBlock = kLostWakeUp;
  ProgressEngine engine(port, {.spin = Duration{0}});
  while (port.blocks.load() == 0) std::this_thread::yield();  // the engine's own thread sleeps
  TimePoint begin = kNever;
  int blocksBefore = 0, blocksAfter = 0;
  const auto allSeen = [&] {
    if (begin == kNever) {  // with exclusive access, just before this thread drives
      begin = monotonicNow();
      blocksBefore = port.blocks.load();
      port.patient = milliseconds(1);
      port.duringRests = kArrivals - 1;
      port.arrive();
    }
    blocksAfter = port.blocks.load();  // now: the engine's own thread sleeps again once this one has left
    return port.seen == kArrivals;
  };
  EXPECT_TRUE(engine.waitUntil(allSeen, monotonicNow() + seconds(60)));
  EXPECT_EQ(blocksAfter, blocksBefore);
  EXPECT_GE(monotonicNow() - begin, (kArrivals - 1) * milliseconds(1));
}

TEST(ProgressEngine_WaitUntil, PatienceBeyondTheDeadline_EndsAtTheDeadline) {
  FakePort port;
  port.patient = seconds(30);
  ProgressEngine engine(port, {.spin = Duration{0}});
  const TimePoint begin = monotonicNow();
  EXPECT_FALSE(engine.waitUntil([] { return false; }, begin + milliseconds(20)));
  EXPECT_LT(monotonicNow() - begin, seconds(15));
}

TEST(ProgressEngine_WaitUntil, PatientTarget_NothingArrives_Blocks) {
  FakePort port;
  port.patient = milliseconds(1);
  ProgressEngine engine(port, {.spin = Duration{0}});
  EXPECT_FALSE(engine.waitUntil([] { return false; }, monotonicNow() + milliseconds(50)));
  EXPECT_GE(port.blocks.load(), 1);
}

TEST(ProgressEngine_WaitUntil, PredicateAlreadyTrue_ReturnsAtOnce) {
  FakePort port;
  ProgressEngine engine(port, {});
  EXPECT_TRUE(engine.waitUntil([] { return true; }, monotonicNow()));
}

TEST(ProgressEngine_WaitUntil, NothingArrives_ReturnsFalseAtDeadline) {
  FakePort port;
  ProgressEngine engine(port, {});
  const TimePoint begin = monotonicNow();
  EXPECT_FALSE(engine.waitUntil([] { return false; }, begin + milliseconds(60)));
  EXPECT_GE(monotonicNow() - begin, milliseconds(60));
}

TEST(ProgressEngine_WaitUntil, ArrivalWhileBlocked_Wakes) {
  FakePort port;
  ProgressEngine engine(port, {});
  std::thread sender([&] {
    // Until the waiter sleeps in the port.
    while (port.blocks.load() == 0) std::this_thread::yield();
    port.arrive();
  });
  EXPECT_TRUE(engine.waitUntil([&] { return port.seen == 1; }, monotonicNow() + seconds(20)));
  sender.join();
}

TEST(ProgressEngine_WaitUntil, ManyWaiters_EachGetsItsCompletion) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 500;
  FakePort port;
  port.shortestBlock = kLostWakeUp;
  ProgressEngine engine(port, {.spin = std::chrono::microseconds(5)});
  std::atomic<int> wanted{0};
  std::atomic<bool> stop{false};
  std::thread sender([&] {
    int sent = 0;
    while (!stop.load()) {
      if (sent < wanted.load()) {
        port.arrive();
        ++sent;
      } else {
        std::this_thread::yield();
      }
    }
  });
  std::atomic<int> failures{0};
  std::vector<std::thread> waiters;
  for (int t = 0; t < kThreads; ++t) {
    waiters.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        int target = 0;
        engine.exclusive([&] { target = wanted.fetch_add(1) + 1; });
        if (!engine.waitUntil([&] { return port.seen >= target; }, monotonicNow() + seconds(30))) ++failures;
      }
    });
  }
  for (auto& w : waiters) w.join();
  stop = true;
  sender.join();
  EXPECT_EQ(failures.load(), 0);
  EXPECT_EQ(port.timeouts.load(), 0) << "a wake-up was lost and only the bound on block() helped";
}

TEST(ProgressEngine_Exclusive, WhileAnotherThreadBusyPolls_IsNotStarved) {
  FakePort port;
  ProgressEngine engine(port, {});
  std::atomic<bool> finished{false};
  bool stopWaiting = false;  // under exclusive access
  std::thread poller([&] {
    EXPECT_TRUE(engine.waitUntil([&] { return stopWaiting; }, monotonicNow() + seconds(60), /*busyPoll=*/true));
    finished = true;
  });
  for (int i = 0; i < 1000; ++i) engine.exclusive([] {});
  EXPECT_FALSE(finished.load());
  engine.exclusive([&] { stopWaiting = true; });
  poller.join();
  EXPECT_GE(port.flushes, 1001);
}

TEST(ProgressEngine_Exclusive, MakesAnotherWaitersPredicateTrue_WakesIt) {
  FakePort port;
  port.shortestBlock = kLostWakeUp;
  ProgressEngine engine(port, {});
  bool ready = false;
  std::thread waiter([&] { EXPECT_TRUE(engine.waitUntil([&] { return ready; }, monotonicNow() + seconds(20))); });
  while (port.blocks.load() == 0) std::this_thread::yield();
  engine.exclusive([&] { ready = true; });
  waiter.join();
  EXPECT_EQ(port.timeouts.load(), 0);
}

TEST(ProgressEngine_EngineThread, NobodyWaits_ArrivalsAreHandled) {
  FakePort port;
  ProgressEngine engine(port, {});
  for (int i = 0; i < 20; ++i) {
    const int before = port.blocks.load();
    port.arrive();
    int seen = 0;
    const TimePoint limit = monotonicNow() + seconds(20);
    while (seen <= i && monotonicNow() < limit) {
      engine.exclusive([&] { seen = port.seen; });
      std::this_thread::yield();
    }
    ASSERT_EQ(seen, i + 1);
    while (port.blocks.load() == before && monotonicNow() < limit) std::this_thread::yield();
  }
}

TEST(ProgressEngine_EngineThread, WaiterThenNobody_PortIsToldWhoDrives) {
  FakePort port;
  ProgressEngine engine(port, {});
  const auto toldOf = [](const std::atomic<bool>& who) {
    const TimePoint until = monotonicNow() + kLostWakeUp;
    while (!who && monotonicNow() < until) std::this_thread::yield();
    return who.load();
  };
  EXPECT_TRUE(toldOf(port.engineDrove));
  const auto waiterDrives = [&] {
    port.engineDrove = false;
    return port.waiterDrove.load();
  };
  EXPECT_TRUE(engine.waitUntil(waiterDrives, monotonicNow() + kLostWakeUp));
  EXPECT_TRUE(toldOf(port.engineDrove));
}

TEST(ProgressEngine_EngineThread, Idle_BlocksInsteadOfPolling) {
  FakePort port;
  ProgressEngine engine(port, {});
  while (port.blocks.load() == 0) std::this_thread::yield();
  const int before = port.polls.load();
  const TimePoint begin = monotonicNow();
  // Half a second of idleness, timed by another engine.
  FakePort other;
  ProgressEngine clock(other, {});
  EXPECT_FALSE(clock.waitUntil([] { return false; }, begin + milliseconds(500)));
  const int polls = port.polls.load() - before;
  // A few each second, since block() has a bound; this thread may have been delayed.
  const auto idleSeconds = std::chrono::ceil<seconds>(monotonicNow() - begin).count();
  EXPECT_LE(polls, 5 * idleSeconds);
}

// A driver that slept until the next datagram would wake for each of fifty thousand a second.
TEST(ProgressEngine_EngineThread, IdleUnderAFloodOfStrangers_TakesThemTogetherAndStillHears) {
  FakePort port, other;
  ProgressEngine engine(port, {}), clock(other, {});
  while (port.blocks.load() == 0) std::this_thread::yield();
  port.flooded = true;
  port.wake();
  const auto polledIn = [&](milliseconds time) {
    const int before = port.polls.load();
    const TimePoint begin = monotonicNow();
    EXPECT_FALSE(clock.waitUntil([] { return false; }, begin + time));
    // At once, once nothing has happened for 10 ms, and at most once a millisecond from then on.
    return std::pair<std::int64_t, std::int64_t>(port.polls.load() - before,
                                                 (monotonicNow() - begin) / milliseconds(1));
  };
  const TimePoint limit = monotonicNow() + kLostWakeUp;
  auto [polls, most] = polledIn(milliseconds(100));
  while (polls > most + 2 && monotonicNow() < limit) std::tie(polls, most) = polledIn(milliseconds(100));
  EXPECT_LE(polls, most + 2);
  EXPECT_GT(polls, 0);

  // An arrival needs no wake-up, and a thread that waits for it none of the rest.
  EXPECT_TRUE(engine.waitUntil(
      [&] {
        if (port.seen == 0) port.arrive();
        return port.seen > 0;
      },
      monotonicNow() + kLostWakeUp));

  port.flooded = false;
  const int blocks = port.blocks.load();
  while (port.blocks.load() == blocks && monotonicNow() < limit) std::this_thread::yield();
  EXPECT_GT(port.blocks.load(), blocks);
}

TEST(ProgressEngine_EngineThread, CannotBePinned_SaysSoOnce) {
  constexpr int kNoSuchCpu = CPU_SETSIZE - 1;
  FakePort port;
  ::testing::internal::CaptureStderr();
  {
    ProgressEngine engine(port, {.engineCpu = kNoSuchCpu});
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(
      said,
      "gloo-bypass: the engine's thread cannot be pinned to CPU 1023 (GLOO_BYPASS_ENGINE_CPU): Invalid argument\n");
}

// As when the child ends with exit(), and destructors close the parent's objects.
TEST(ProgressEngine_ForkedChild, ParentsThreadHasAccess_ChildNeitherWaitsNorSends) {
  FakePort port;
  ProgressEngine engine(port, {});
  std::atomic<bool> holds{false}, mayEnd{false};
  std::thread holder([&] {
    engine.exclusive([&] {
      holds = true;
      holds.notify_all();
      mayEnd.wait(false);
    });
  });
  holds.wait(false);
  const int flushes = port.flushes;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    forked_child::giveFree();
    bool ran = false;
    engine.exclusive([&] { ran = true; });
    const bool ended = !engine.waitUntil([] { return false; }, kNever);
    ::_exit(ran && ended && port.flushes == flushes ? 0 : 1);
  }
  mayEnd = true;
  mayEnd.notify_all();
  holder.join();
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ProgressEngine_WaitUntil, PredicateThrowsFromExclusive_AccessIsReleased) {
  FakePort port;
  ProgressEngine engine(port, {});
  EXPECT_THROW(engine.exclusive([] { throw std::runtime_error("x"); }), std::runtime_error);
  bool ran = false;
  engine.exclusive([&] { ran = true; });
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace gloo_bypass
