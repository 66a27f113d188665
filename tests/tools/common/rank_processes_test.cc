#include "tools/common/rank_processes.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/common/error.h"

namespace gloo_bypass {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Long enough for a rank to end, short enough to wait for.
constexpr milliseconds kMoment{200};
const RankTimes kSoon{.grace = milliseconds(10), .killAfter = milliseconds(1000)};
const RankTimes kPatient{.grace = milliseconds(5000), .killAfter = milliseconds(1000)};

int endBySignal(int signal) {
  (void)std::signal(signal, SIG_DFL);
  (void)::raise(signal);
  return 0;
}
int waitForEver() {
  for (;;) ::pause();
}

TEST(RankProcesses, AllEndWell_NothingIsSaid) {
  RankProcesses ranks(3, [](int) { return 0; });
  const RanksEnd end = ranks.supervise();
  EXPECT_EQ(end.exitStatus, 0);
  EXPECT_EQ(end.message, "");
}

TEST(RankProcesses, Rank_IsToldToTheBodyAndInTheEnvironment) {
  RankProcesses ranks(3, [](int rank) { return std::getenv("RANK") == std::to_string(rank) ? 0 : 1; });
  EXPECT_EQ(ranks.supervise().exitStatus, 0);
}

TEST(RankProcesses, OneFails_IsNamedAndTheOthersEnd) {
  RankProcesses ranks(3, [](int rank) { return rank == 1 ? 7 : waitForEver(); });
  const RanksEnd end = ranks.supervise(kSoon);
  EXPECT_EQ(end.exitStatus, 7);
  EXPECT_EQ(end.rank, 1);
  EXPECT_THAT(end.message, HasSubstr("rank 1 (pid "));
  EXPECT_THAT(end.message, HasSubstr("exited with status 7"));
}

TEST(RankProcesses, OneIsKilled_IsNamedWithTheSignal) {
  RankProcesses ranks(2, [](int rank) { return rank == 0 ? endBySignal(SIGKILL) : waitForEver(); });
  const RanksEnd end = ranks.supervise(kSoon);
  EXPECT_EQ(end.exitStatus, 128 + SIGKILL);
  EXPECT_THAT(end.message, HasSubstr("was ended by signal 9 (Killed)"));
}

TEST(RankProcesses, OneFailsInTheGracePeriodOfAKilledOne_TheKilledOneIsAtFault) {
  // Sockets close before a process can be waited for: a rank that was connected to it may be reaped first.
  RankProcesses ranks(2, [](int rank) {
    if (rank == 0) return 1;
    std::this_thread::sleep_for(kMoment);
    return endBySignal(SIGKILL);
  });
  EXPECT_EQ(ranks.supervise(kPatient).rank, 1);
}

TEST(RankProcesses, OneEndsBySigpipeAfterAFailure_IsNotAtFault) {
  RankProcesses ranks(2, [](int rank) {
    if (rank == 1) return 3;
    std::this_thread::sleep_for(kMoment);
    return endBySignal(SIGPIPE);
  });
  const RanksEnd end = ranks.supervise(kPatient);
  EXPECT_EQ(end.rank, 1);
  EXPECT_EQ(end.exitStatus, 3);
}

TEST(RankProcesses, OneEndsBySigpipeWithAFailure_IsNotAtFault) {
  RankProcesses ranks(2, [](int rank) { return rank == 1 ? 3 : endBySignal(SIGPIPE); });
  std::this_thread::sleep_for(kMoment);  // both are reaped at once
  EXPECT_EQ(ranks.supervise(kPatient).rank, 1);
}

TEST(RankProcesses, OneEndsBySigpipeAlone_IsAtFault) {
  RankProcesses ranks(2, [](int rank) { return rank == 1 ? endBySignal(SIGPIPE) : 0; });
  EXPECT_EQ(ranks.supervise(kPatient).exitStatus, 128 + SIGPIPE);
}

TEST(RankProcesses, OthersIgnoreSigterm_AreKilled) {
  const RankTimes times{.grace = milliseconds(10), .killAfter = milliseconds(50)};
  RankProcesses ranks(2, [](int rank) {
    if (rank == 1) return 3;
    (void)std::signal(SIGTERM, SIG_IGN);
    return waitForEver();
  });
  EXPECT_EQ(ranks.supervise(times).exitStatus, 3);
}

TEST(RankProcesses, TimeLimit_EndsAllAndIsNamed) {
  RankProcesses ranks(2, [](int) { return waitForEver(); });
  const RanksEnd end = ranks.supervise({.limit = kMoment, .limitName = "--deadline"});
  EXPECT_EQ(end.exitStatus, kExitFailure);
  EXPECT_EQ(end.rank, -1);
  EXPECT_THAT(end.message, HasSubstr("not done after 0.2 s (--deadline)"));
}

TEST(RankProcesses, SignalToTheLauncher_IsPassedOn) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const auto before = std::signal(signal, SIG_DFL);  // under nohup, say, it would be ignored
    RankProcesses ranks(2, [](int) { return waitForEver(); });
    ASSERT_EQ(::kill(::getpid(), signal), 0);
    const RanksEnd end = ranks.supervise(kSoon);
    EXPECT_EQ(end.exitStatus, 128 + signal);
    EXPECT_THAT(end.message, HasSubstr("signal " + std::to_string(signal)));
    (void)std::signal(signal, before);
  }
}

TEST(RankProcesses, SignalThatIsIgnored_EndsNothing) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  RankProcesses ranks(2, [](int) {
    std::this_thread::sleep_for(kMoment);
    return 0;
  });
  EXPECT_EQ(::kill(::getpid(), SIGHUP), 0);
  EXPECT_EQ(ranks.supervise(kSoon).exitStatus, 0);
  (void)std::signal(SIGHUP, before);
}

// A parent may pass this on.
TEST(RankProcesses, SigchldIsIgnored_EndsAreSeenAndItIsIgnoredAgain) {
  (void)std::signal(SIGCHLD, SIG_IGN);
  {
    RankProcesses well(2, [](int) { return 0; });
    EXPECT_EQ(well.supervise({.limit = std::chrono::seconds(20), .limitName = "test"}).message, "");
    RankProcesses failing(2, [](int rank) { return 3 * rank; });
    EXPECT_EQ(failing.supervise({.limit = std::chrono::seconds(20), .limitName = "test"}).exitStatus, 3);
  }
  EXPECT_EQ(std::signal(SIGCHLD, SIG_DFL), SIG_IGN);
}

TEST(RankProcesses, Destroyed_EndsRanksAndLetsSignalsThrough) {
  sigset_t before, after;
  sigemptyset(&before);
  sigemptyset(&after);
  ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, nullptr, &before), 0);
  {
    const RankProcesses ranks(2, [](int) { return waitForEver(); });
  }
  ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, nullptr, &after), 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD})
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << signal;
}

}  // namespace
}  // namespace gloo_bypass
