// Ranks that do not wait for each other: the server's handling of their gradients, and the results of real ranks.
#include <fstream>
#include <future>
#include <limits>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/tiny_training.h"
#include "tests/trainer/training_results.h"
#include "tools/common/error.h"
#include "trainer/distributed/averaging/parameter_server.h"

namespace gloo_bypass::trainer::testing {
namespace {

ParameterServer serverOf(const AveragingOptions& options, std::chrono::duration<double> patience) {
  Options all;
  all.averaging = options;
  auto parameter = at::zeros({3}, at::kDouble).requires_grad_();
  return {std::make_unique<AdamW>(std::vector<at::Tensor>{parameter}, all), 2, 0, options, patience};
}

AveragingOptions bound(int64_t steps) { return {.method = AveragingMethod::kAsynchronous, .stalenessBound = steps}; }

// The exception of a call.
template <typename Call>
std::string errorOf(const Call& call) {
  try {
    call();
  } catch (const ProgramError& error) {
    return error.what();
  }
  return {};
}

// A published example: 16 ranks, 22.3 % of the rate at a staleness of 15 and 52.5 % (here 52.4) on average from 0
// to 15.
TEST(StalenessPenalty, IsTheFormula) {
  EXPECT_DOUBLE_EQ(penaltyOf(StalenessPenalty::kInverse, 0), 1);
  EXPECT_DOUBLE_EQ(penaltyOf(StalenessPenalty::kInverse, 4), 0.25);
  EXPECT_DOUBLE_EQ(penaltyOf(StalenessPenalty::kNone, 4), 1);
  EXPECT_NEAR(penaltyOf(StalenessPenalty::kExponential, 15), 0.223, 0.0005);
  double sum = 0;
  for (int64_t staleness = 0; staleness < 16; ++staleness) {
    sum += penaltyOf(StalenessPenalty::kExponential, staleness);
  }
  EXPECT_NEAR(sum / 16, 0.525, 0.001);
}

TEST(ParameterServer, RankIsAheadOfTheBound_WaitsForTheSlowestAndSaysForWhom) {
  const auto gradient = at::ones({3}, at::kDouble);
  auto unbounded = serverOf(bound(-1), std::chrono::milliseconds(1));
  for (int64_t step = 0; step < 20; ++step) EXPECT_EQ(unbounded.push(0, gradient, step, 0.1).version, step + 1);

  auto server = serverOf(bound(2), std::chrono::milliseconds(1));
  server.push(0, gradient, 0, 0.1);
  server.push(0, gradient, 1, 0.1);
  EXPECT_EQ(errorOf([&] { server.push(0, gradient, 2, 0.1); }),
            "rank 0 has done 3 steps and waits for rank 1, which has done 0 and none for 0.001 s");
}

TEST(ParameterServer, SlowestComes_WhoWaitsGoesOnWithItsUpdate) {
  const auto gradient = at::ones({3}, at::kDouble);
  auto server = serverOf(bound(0), kLimit);
  auto waiting = std::async(std::launch::async, [&] { return server.push(0, gradient, 0, 0.1); });
  const auto late = server.push(1, gradient, 0, 0.1);
  EXPECT_EQ(waiting.get().version, 2);
  EXPECT_EQ(late.version, 2);
}

TEST(ParameterServer, Failure_EndsEveryWait) {
  const auto gradient = at::ones({3}, at::kDouble);
  auto server = serverOf(bound(0), kLimit);
  auto waiting = std::async(std::launch::async, [&] { return errorOf([&] { server.push(0, gradient, 0, 0.1); }); });
  server.fail(std::make_exception_ptr(ProgramError("rank 1 is gone")));
  EXPECT_EQ(waiting.get(), "rank 1 is gone");
  EXPECT_EQ(errorOf([&] { server.push(1, gradient, 0, 0.1); }), "rank 1 is gone");
}

TEST(ParameterServer, OthersAreBehind_AreAwaitedAsLongAsTheyMakeSteps) {
  using std::chrono::milliseconds;
  const auto gradient = at::ones({3}, at::kDouble);
  auto server = serverOf(bound(-1), kLimit);
  EXPECT_TRUE(server.awaitOthers(0, milliseconds(0)));
  for (int64_t step = 0; step < 2; ++step) server.push(0, gradient, step, 0.1);
  EXPECT_FALSE(server.awaitOthers(0, milliseconds(1)));
  server.push(1, gradient, 0, 0.1);
  EXPECT_FALSE(server.awaitOthers(0, milliseconds(1)));
  EXPECT_TRUE(server.awaitOthers(1, milliseconds(0)));
  auto waiting = std::async(std::launch::async, [&] { return server.awaitOthers(0, kLimit); });
  server.push(1, gradient, 0, 0.1);
  EXPECT_TRUE(waiting.get());

  auto impatient = serverOf(bound(-1), milliseconds(1));
  impatient.push(0, gradient, 0, 0.1);
  EXPECT_EQ(errorOf([&] {
              while (!impatient.awaitOthers(0, milliseconds(2))) {
              }
            }),
            "rank 0 has done 1 steps and waits for rank 1, which has done 0 and none for 0.001 s");
}

TEST(ParameterServer, VersionThatNeverWas_IsRefusedAndChangesNothing) {
  auto server = serverOf(bound(-1), kLimit);
  for (const int64_t version : {int64_t{1}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_NE(errorOf([&] { server.push(1, at::ones({3}, at::kDouble), version, 0.1); }).find("rank 1 sent a gradient"),
              std::string::npos);
  }
  EXPECT_EQ(server.version(), 0);
  EXPECT_TRUE(server.optimizer().parameters()[0].eq(0).all().item<bool>());
}

TEST(Asynchronous, OneRank_HasTheBitsOfPlainTrainingAlsoWhenResumed) {
  const TemporaryFolder folder;
  const std::vector<std::string> flags{"--spawn", "1", "--average", "asynchronous", "--clip-norm", "0.5"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return digestOf(train(more));
  };
  const auto plain = digestOf(train({"--spawn", "1", "--clip-norm", "0.5", "--steps", "6"}));
  EXPECT_EQ(with({"--steps", "6"}), plain);
  with({"--steps", "3", "--checkpoint", folder / "c"});
  EXPECT_EQ(with({"--steps", "6", "--resume", folder / "c"}), plain);
}

// Each rank has the parameters of its own push.
TEST(Asynchronous, VerifyRanks_ComparesNothingBetweenMeetings) {
  const auto finished = train({"--spawn", "3", "--steps", "6", "--average", "asynchronous", "--verify-ranks"});
  EXPECT_EQ(finished.shellStatus(), 0) << finished.err;
}

TEST(Asynchronous, RateScaling_CountsTheSamplesOfAnUpdate) {
  const auto finished = train({"--spawn", "2", "--steps", "1", "--batch-size", "4", "--average", "asynchronous", "--lr",
                               "0.001", "--lr-scaling", "linear", "--lr-base-batch", "2"});
  EXPECT_DOUBLE_EQ(stepsOf(finished.out).at(0)["learning_rate"].get<double>(), 0.002) << finished.err;
  EXPECT_EQ(stepsOf(finished.out).at(0)["tokens"], 4 * 16);  // this rank's: its step is its own
}

// The server waits for gradients on a thread of its own while the trace is gathered.
TEST(Asynchronous, Traced_RanksMessagesDoNotMeetTheServers) {
  const TemporaryFolder folder;
  const std::vector<std::string> flags{"--spawn", "2", "--steps", "4", "--average", "asynchronous"};
  auto traced = flags;
  traced.insert(traced.end(), {"--trace", folder / "t"});
  const auto finished = train(traced);
  EXPECT_EQ(finished.shellStatus(), 0) << finished.err;
  const auto trace = nlohmann::json::parse(std::ifstream(folder / "t"));
  std::set<int64_t> ranks;
  for (const auto& span : trace.at("traceEvents")) ranks.insert(span.at("pid").get<int64_t>());
  EXPECT_EQ(ranks, (std::set<int64_t>{0, 1}));
}

// Which stands still twice, for less than the timeout each time and longer together.
TEST(Asynchronous, RankIsBehindByMoreThanTheTimeout_OthersWaitAtTheEnd) {
  const TemporaryFolder folder;
  const uint16_t port = freePort();
  const auto metricsOf = [&](int rank) { return folder / ("metrics" + std::to_string(rank)); };
  const auto start = [&](int rank) {
    return startTraining(
        {"--steps", "300", "--average", "asynchronous", "--timeout", "8", "--metrics", folder / "metrics{rank}"},
        rankOf(rank, 2, port));
  };
  auto rank0 = start(0), rank1 = start(1);
  const auto linesOf = [&](int rank) {
    const std::string text = contentsOf(metricsOf(rank));
    return std::count(text.begin(), text.end(), '\n');
  };
  const auto until = [&](auto condition) {
    const auto end = std::chrono::steady_clock::now() + kLimit;
    while (!condition() && std::chrono::steady_clock::now() < end) ::usleep(1000);
    return condition();
  };
  const auto standStill = [&] {
    ASSERT_EQ(::kill(rank1.pid(), SIGSTOP), 0);
    ::usleep(5'000'000);
    ASSERT_EQ(::kill(rank1.pid(), SIGCONT), 0);
  };
  ASSERT_TRUE(until([&] { return linesOf(1) >= 3; }));
  standStill();
  const auto before = linesOf(1);
  ASSERT_TRUE(until([&] { return linesOf(1) > before; }));
  standStill();
  const auto first = rank0.finish(kLimit), second = rank1.finish(kLimit);
  EXPECT_EQ(first.shellStatus(), 0) << first.err;
  EXPECT_EQ(second.shellStatus(), 0) << second.err;
}

TEST(Asynchronous, Rank0Fails_TheOthersThreadsAndRanksEnd) {
  const TemporaryFolder folder;
  auto process = startTraining({"--spawn", "3", "--steps", "20", "--average", "asynchronous", "--checkpoint",
                                folder / "c", "--checkpoint-every", "10", "--timeout", "300"},
                               {}, 100'000);
  const auto finished = process.finish(kLimit);
  EXPECT_EQ(finished.shellStatus(), 1) << finished.err;
  EXPECT_NE(finished.err.find("cannot write"), std::string::npos) << finished.err;
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
