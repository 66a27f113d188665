// Questions that a forked child answers: the result, however the child ends.
#include "plugin/torch/child_answer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <string>

namespace gloo_bypass {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// A bound that only a hang reaches.
constexpr seconds kBound{30};

bool hasChildren() { return ::waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD; }

TEST(ChildAnswer_Ask, Returns_TextOfAnotherProcess) {
  const ChildAnswer answer = answerOfChild([] { return std::to_string(::getpid()); }, kBound);
  ASSERT_TRUE(answer.answered) << answer.text;
  EXPECT_NE(answer.text, std::to_string(::getpid()));
  EXPECT_FALSE(hasChildren());
}

TEST(ChildAnswer_Ask, LongerThanThePipe_ComesWhole) {
  const std::string text(1 << 20, 'x');
  EXPECT_EQ(answerOfChild([&] { return text; }, kBound).text, text);
}

TEST(ChildAnswer_Ask, Empty_IsAnAnswer) {
  EXPECT_TRUE(answerOfChild([] { return ""; }, kBound).answered);
}

TEST(ChildAnswer_Ask, Throws_NotAnsweredWithItsText) {
  const ChildAnswer answer = answerOfChild([]() -> std::string { throw std::runtime_error("no such device"); }, kBound);
  EXPECT_FALSE(answer.answered);
  EXPECT_EQ(answer.text, "no such device");
}

TEST(ChildAnswer_Ask, Crashes_NotAnsweredWithTheSignal) {
  const ChildAnswer answer = answerOfChild(
      []() -> std::string {
        ::raise(SIGKILL);
        return "";
      },
      kBound);
  EXPECT_FALSE(answer.answered);
  EXPECT_THAT(answer.text, HasSubstr("signal 9"));
  EXPECT_FALSE(hasChildren());
}

// As a child that another thread forks at the wrong moment: it has the pipe, and outlives the other child.
TEST(ChildAnswer_Ask, CrashesWhileAnotherProcessHoldsThePipe_IsSeenAtOnce) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const ChildAnswer answer = answerOfChild(
      [&]() -> std::string {
        const pid_t holder = ::fork();
        if (holder == 0) {
          ::close(ends[1]);
          char byte;
          [[maybe_unused]] const ssize_t count = ::read(ends[0], &byte, 1);  // until the test ends
          ::_exit(0);
        }
        ::raise(SIGKILL);
        return "";
      },
      kBound);
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_THAT(answer.text, HasSubstr("signal 9")) << "took the end of the pipe for the child's";
}

TEST(ChildAnswer_Ask, NeverReturns_IsKilledAtTheBound) {
  const ChildAnswer answer = answerOfChild(
      []() -> std::string {
        for (;;) ::pause();
      },
      milliseconds(50));
  EXPECT_FALSE(answer.answered);
  EXPECT_THAT(answer.text, HasSubstr("0.05 s"));
  EXPECT_FALSE(hasChildren());
}

TEST(ChildAnswer_Ask, WritesToStandardStreams_NothingIsSeen) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  answerOfChild(
      [] {
        [[maybe_unused]] const ssize_t out = ::write(STDOUT_FILENO, "seen", 4);
        [[maybe_unused]] const ssize_t err = ::write(STDERR_FILENO, "seen", 4);
        return "";
      },
      kBound);
  EXPECT_EQ(::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr(), "");
}

TEST(ChildAnswer_Ask, ProgramIgnoresItsChildren_AnswerComesAllTheSame) {
  const auto before = ::signal(SIGCHLD, SIG_IGN);  // the kernel reaps the child before the test can wait for it
  const ChildAnswer answer = answerOfChild([] { return "here"; }, kBound);
  ::signal(SIGCHLD, before);
  EXPECT_EQ(answer.text, "here");
}

}  // namespace
}  // namespace gloo_bypass
