// Operations of a group in their order: its queue over an executor that does nothing.
#include "collectives/ordered_group.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <initializer_list>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {
namespace {

class Idle final : public Executor {
 public:
  Status run(const Call&, TimePoint) override { return outcome; }
  void abort() noexcept override { ++aborts; }

  Status outcome;
  std::atomic<int> aborts{0};
};

constexpr std::chrono::milliseconds kLong{20'000};
const auto kNobody = [](const Error&) {};

// A program may leave its group as soon as it knows that its last operation has ended.
TEST(OperationQueue_End, WhileTheLastReportIsUnderWay_AbortsNothing) {
  Idle executor;
  std::atomic<bool> reported{false};
  {
    OperationQueue queue(executor, kNobody);
    queue.start(Call{}, kLong, [&](const Status&) {
      reported = true;
      ::usleep(50'000);  // the end begins here
    });
    while (!reported) ::usleep(100);
  }
  EXPECT_EQ(executor.aborts, 0);
}

TEST(OperationQueue_End, WithAnOperationThatNobodyReported_AbortsIt) {
  Idle executor;
  std::atomic<bool> begun{false};
  {
    OperationQueue queue(executor, kNobody);
    queue.start(Call{}, kLong, [&](const Status&) {
      begun = true;
      // Until the end has begun, in which the second one is still to come.
      for (const TimePoint late = monotonicNow() + kLong; executor.aborts == 0 && monotonicNow() < late;) ::usleep(100);
    });
    while (!begun) ::usleep(100);
    queue.start(Call{}, kLong, [](const Status&) {});
  }
  EXPECT_EQ(executor.aborts, 1);
}

class Held final : public Executor {
 public:
  Status run(const Call&, TimePoint deadline) override {
    while (!released) ::usleep(100);
    latest = deadline;
    return {};
  }
  void abort() noexcept override {}

  std::atomic<bool> released{false};
  TimePoint latest{};
};

TEST(OperationQueue_Timeout, BehindOthers_CountsFromItsTurn) {
  Held executor;
  OperationQueue queue(executor, kNobody);
  std::atomic<int> ended{0};
  for (int i = 0; i < 2; ++i) queue.start(Call{}, kLong, [&](const Status&) { ++ended; });
  ::usleep(1000);
  const TimePoint turn = monotonicNow();
  executor.released = true;
  while (ended < 2) ::usleep(100);
  EXPECT_GE(executor.latest, turn + kLong);
}

// Calls are known by their root.
class Listening final : public Executor {
 public:
  Status run(const Call& call, TimePoint) override {
    running = true;
    while (!released) ::usleep(100);
    ran.push_back(call.root);
    return {};
  }
  void announce(const Call& call) noexcept override {
    announced.push_back(call.root);
    EXPECT_EQ(call.inputs.size(), 1u);
  }
  void abort() noexcept override {}

  std::atomic<bool> running{false}, released{false};
  std::vector<int> announced, ran;
};

void startAll(OperationQueue& queue, std::atomic<int>& ended, std::initializer_list<int> roots) {
  for (const int root : roots) {
    const ConstBlock input{};
    queue.start(Call{.root = root, .inputs = {&input, 1}}, kLong, [&](const Status&) { ++ended; });
  }
}

TEST(OperationQueue_Announcement, OfAllThatAreStarted_InTheirOrder) {
  Listening executor;
  OperationQueue queue(executor, kNobody);
  std::atomic<int> ended{0};
  startAll(queue, ended, {1, 2, 3});
  EXPECT_EQ(executor.announced, (std::vector<int>{1, 2, 3}));
  executor.released = true;
  while (ended < 3) ::usleep(100);
  EXPECT_EQ(executor.ran, executor.announced);
}

// The executor may not know of that one yet, and would take the next one for it.
TEST(OperationQueue_Announcement, BehindACallThatWasNotAnnounced_IsNone) {
  Listening executor;
  OperationQueue queue(executor, kNobody);
  std::atomic<int> ended{0};
  std::thread caller([&] { EXPECT_TRUE(queue.run(Call{}, kLong)); });
  while (!executor.running) ::usleep(100);
  startAll(queue, ended, {1, 2});
  EXPECT_TRUE(executor.announced.empty());
  executor.released = true;
  caller.join();
  while (ended < 2) ::usleep(100);
  EXPECT_EQ(executor.ran, (std::vector<int>{0, 1, 2}));
  // Again, once all turns before it have ended; a report comes before the end of its turn.
  for (int started = 3; executor.announced.empty(); ++started) {
    startAll(queue, ended, {3});
    while (ended < started) ::usleep(100);
  }
}

class Throwing final : public Executor {
 public:
  Status run(const Call&, TimePoint) override {
    ++runs;
    throw std::bad_alloc();
  }
  void abort() noexcept override { ++aborts; }

  int runs = 0, aborts = 0;
};

// What it knows of operations that were announced is unknown.
TEST(OperationQueue_Exception, EndsAllThatFollow) {
  Throwing executor;
  OperationQueue queue(executor, kNobody);
  for (int i = 0; i < 3; ++i) {
    const Status status = queue.run(Call{}, kLong);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("could not run"), std::string::npos) << status.error().message;
  }
  EXPECT_EQ(executor.runs, 1);
  EXPECT_EQ(executor.aborts, 1);
}

TEST(OperationQueue_Failure, IsToldBeforeItIsReported) {
  Idle executor;
  executor.outcome = {ErrorScope::kSession, ErrorCode::kPeerVanished, "the process of rank 1 has ended"};
  std::string told;
  OperationQueue queue(executor, [&](const Error& error) { told = error.message; });
  EXPECT_FALSE(queue.run(Call{}, kLong));
  EXPECT_EQ(told, "the process of rank 1 has ended");
  told.clear();
  std::string toldAtReport;
  std::atomic<bool> reported{false};
  queue.start(Call{}, kLong, [&](const Status&) {
    toldAtReport = told;
    reported = true;
  });
  while (!reported) ::usleep(100);
  EXPECT_EQ(toldAtReport, "the process of rank 1 has ended");
}

}  // namespace
}  // namespace gloo_bypass::collectives
