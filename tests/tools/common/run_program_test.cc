#include "tools/common/run_program.h"

#include <string>
#include <variant>

#include <gtest/gtest.h>

#include "tools/common/error.h"

namespace gloo_bypass {
namespace {

using Parsed = std::variant<int, std::string>;

// Passes the options that the program "probe" gets to `body`.
template <typename Body>
int run(const Body& body) {
  return runProgram("probe", [](int, const char* const*) -> Parsed { return 5; }, body, 0, nullptr);
}

TEST(RunProgram, Body_GetsOptionsAndItsStatusIsReturned) {
  EXPECT_EQ(run([](int options) { return options + 1; }), 6);
}

TEST(RunProgram, TextInsteadOfOptions_IsPrinted) {
  ::testing::internal::CaptureStdout();
  const auto parse = [](int, const char* const*) -> Parsed { return "help\n"; };
  EXPECT_EQ(runProgram("probe", parse, [](int) { return 9; }, 0, nullptr), 0);
  std::fflush(stdout);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "help\n");
}

TEST(RunProgram, Exception_IsOneLineAndItsStatus) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run([](int) -> int { throw UsageError("wrong\nflag\n"); }), kExitUsage);
  EXPECT_EQ(run([](int) -> int { throw ProgramError("broken"); }), kExitFailure);
  EXPECT_EQ(run([](int) -> int { throw ProgramError("killed", 137); }), 137);
  EXPECT_EQ(run([](int) -> int { throw std::runtime_error("theirs"); }), kExitFailure);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "probe: wrong flag\nprobe: broken\nprobe: killed\nprobe: theirs\n");
}

// A peer's or a file's text in it neither moves the cursor nor adds lines.
TEST(RunProgram, ExceptionWithControlCharacters_IsOnePrintableLine) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run([](int) -> int { throw ProgramError("rank 1 says: \x1b[2J\r\nh\xc3\xb6st \x9b\x07"); }), kExitFailure);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "probe: rank 1 says: \\x1b[2J  h\xc3\xb6st \\x9b\\x07\n");
}

}  // namespace
}  // namespace gloo_bypass
