// Operations of a group in their order: its queue over an executor that does nothing.
#include "collectives/ordered_group.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>

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
