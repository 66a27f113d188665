// Traces, clocks and utilisation: the arithmetic alone, and real ranks with clocks that differ.
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/tiny_training.h"
#include "tests/trainer/training_results.h"
#include "tools/common/free_port.h"
#include "trainer/config/options.h"
#include "trainer/metrics/tracing/bucket_readiness.h"
#include "trainer/metrics/tracing/chrome_trace.h"
#include "trainer/metrics/tracing/clock_offset.h"

namespace gloo_bypass::trainer::testing {
namespace {

using Json = nlohmann::json;
using Time = BucketReadiness::Time;

Time at(int64_t nanoseconds) { return Time(std::chrono::nanoseconds(nanoseconds)); }

TEST(ClockOffset, UnevenWays_AreWithinTheBound) {
  constexpr int64_t kOffsetNs = -7'000'000'000'123;
  std::mt19937_64 random(3);
  std::uniform_int_distribution<int64_t> delay(1'000, 900'000);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<ClockExchange> exchanges;
    int64_t now = 5'000'000'000, shortest = INT64_MAX;
    for (int i = 0; i < 20; ++i) {
      const int64_t there = delay(random), back = delay(random);
      exchanges.push_back({.sentNs = now, .remoteNs = now + there + kOffsetNs, .receivedNs = now + there + back});
      shortest = std::min(shortest, there + back);
      now += there + back;
    }
    const auto offset = estimateOffset(exchanges);
    EXPECT_LE(std::abs(offset.offsetNs - kOffsetNs), offset.errorBoundNs) << trial;
    EXPECT_EQ(offset.errorBoundNs, (shortest + 1) / 2);
  }
}

TEST(ClockOffset, OneWayTakesAll_IsTheWholeBound) {
  const ClockExchange late{
      .sentNs = 100, .remoteNs = 1100, .receivedNs = 300};  // the answer took 200, the question nothing
  const auto offset = estimateOffset({&late, 1});
  EXPECT_EQ(offset.errorBoundNs, 100);
  EXPECT_EQ(offset.offsetNs, 1000 - 100);
}

TEST(ClockOffset, ClocksThatDrift_AreInterpolatedBetweenTheTwoEstimates) {
  const ClockOffset first{.localNs = 1'000'000, .offsetNs = 500, .errorBoundNs = 0};
  const ClockOffset last{.localNs = 3'000'000, .offsetNs = 700, .errorBoundNs = 0};
  EXPECT_EQ(toRemoteClock(2'000'000, first, last), 2'000'600);
  EXPECT_EQ(toRemoteClock(0, first, last), 500);
  EXPECT_EQ(toRemoteClock(4'000'000, first, last), 4'000'700);
  EXPECT_EQ(toRemoteClock(7, first, first), 507);
}

TEST(BucketReadiness, FirstBackward_IsCutFromTheLastParameterOn) {
  BucketReadiness readiness({40, 8, 4});  // bytes of three parameters
  // As with a tied embedding: the first parameter, cut last, is ready last; the second one was ready before the third.
  readiness.gradientReady(1, at(10));
  readiness.gradientReady(2, at(20));
  readiness.gradientReady(0, at(30));
  const auto first = readiness.ofBuckets({12, 40});
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ((*first)[0].first, at(10));
  EXPECT_EQ((*first)[0].last, at(20));
  EXPECT_EQ((*first)[1].first, at(30));
}

TEST(BucketReadiness, LaterBackwards_AreCutInTheFirstOnesOrder) {
  BucketReadiness readiness({40, 8, 4});
  const auto backward = [&](int64_t start) {
    readiness.gradientReady(1, at(start + 1));
    readiness.gradientReady(0, at(start + 2));
    readiness.gradientReady(2, at(start + 3));
  };
  backward(0);
  ASSERT_TRUE(readiness.ofBuckets({4, 48}).has_value());
  backward(100);
  const auto rebuilt = readiness.ofBuckets({48, 4});
  ASSERT_TRUE(rebuilt.has_value());
  EXPECT_EQ((*rebuilt)[0].last, at(102));
  EXPECT_EQ((*rebuilt)[1].first, at(103));
  readiness.gradientReady(2, at(151));  // another order: buckets stay as they are
  readiness.gradientReady(1, at(152));
  readiness.gradientReady(0, at(153));
  const auto later = readiness.ofBuckets({48, 4});
  ASSERT_TRUE(later.has_value());
  EXPECT_EQ((*later)[0].first, at(152));
  EXPECT_EQ((*later)[1].last, at(151));
  backward(200);
  EXPECT_FALSE(readiness.ofBuckets({12, 40}).has_value()) << "cut from the order of registration";
}

TEST(BucketReadiness, BytesThatDoNotFitOrMissingGradients_SayNothing) {
  BucketReadiness readiness({40, 8});
  for (const auto& bytes : {std::vector<int64_t>{48, 8}, {9, 39}, {8}, {}, {0, 48}}) {
    readiness.gradientReady(0, at(1));
    readiness.gradientReady(1, at(2));
    EXPECT_FALSE(readiness.ofBuckets(bytes).has_value()) << bytes.size();
  }
  readiness.gradientReady(0, at(1));
  EXPECT_FALSE(readiness.ofBuckets({48}).has_value()) << "the second gradient is of an earlier backward";
}

TEST(TraceRecorder, Full_KeepsTheFirstAndCountsTheRest) {
  TraceRecorder recorder(2);
  for (int64_t step = 1; step <= 5; ++step) {
    recorder.add(SpanKind::kStep, step, 0, at(step), at(step + 1));
  }
  ASSERT_EQ(recorder.spans().size(), 2u);
  EXPECT_EQ(recorder.spans().back().step, 2);
  EXPECT_EQ(recorder.leftOut(), 3);
}

// Spans of one thread and process nest or are apart, as the format demands.
void expectNested(const std::vector<Json>& spans) {
  std::map<std::pair<int64_t, int64_t>, std::vector<double>> open;  // ends of what is open, by track
  constexpr double kHalfNanosecond = 5e-4;
  for (const auto& span : spans) {
    auto& ends = open[{span["pid"].get<int64_t>(), span["tid"].get<int64_t>()}];
    const double begin = span["ts"].get<double>(), end = begin + span["dur"].get<double>();
    while (!ends.empty() && ends.back() <= begin + kHalfNanosecond) {
      ends.pop_back();
    }
    EXPECT_TRUE(ends.empty() || end <= ends.back() + kHalfNanosecond) << span;
    ends.push_back(end);
  }
}

std::vector<Json> spansOf(const Json& trace) {
  std::vector<Json> spans;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      spans.push_back(event);
    }
  }
  return spans;
}

TEST(ChromeTrace, OverlappingBuckets_GetTracksOfTheirOwnAndTheLastIsReused) {
  std::string text;
  ChromeTrace trace([&](std::string_view piece) { text += piece; }, 1'000, 1, "TCP", "gloo", "all_reduce");
  const std::vector<TraceSpan> spans{{SpanKind::kBucketReduced, 1, 0, 8, 1'000, 3'000},
                                     {SpanKind::kBucketReduced, 1, 1, 8, 2'000, 5'000},
                                     {SpanKind::kBucketReduced, 1, 2, 8, 3'000, 4'000},
                                     {SpanKind::kStep, 1, 0, 0, 1'000, 6'000},
                                     {SpanKind::kForward, 1, 0, 0, 1'000, 2'000}};
  trace.addRank({.rank = 0, .leftOut = 7}, spans);
  trace.finish();
  const Json json = Json::parse(text);
  const auto written = spansOf(json);
  ASSERT_EQ(written.size(), 5u);
  expectNested(written);
  std::map<int64_t, int64_t> tracks;
  for (const auto& span : written) {
    if (span["args"].contains("bucket")) {
      tracks[span["args"]["bucket"].get<int64_t>()] = span["tid"].get<int64_t>();
    }
  }
  EXPECT_EQ(tracks[0], tracks[2]);
  EXPECT_NE(tracks[0], tracks[1]);
  EXPECT_EQ(json["ranks"][0]["spans_left_out"], 7);
  EXPECT_EQ(written[0]["ts"], 0.0);
}

TEST(ChromeTrace, AnotherRanksTimes_AreOnRankZerosClock) {
  std::string text;
  ChromeTrace trace([&](std::string_view piece) { text += piece; }, 10'000, 2, "TCP", "gloo", "all_reduce");
  const ClockOffset clock{.localNs = 0, .offsetNs = 9'000, .errorBoundNs = 40};
  const std::vector<TraceSpan> spans{{SpanKind::kBarrier, 1, 0, 0, 3'000, 3'500}};
  trace.addRank({.rank = 1, .clockAtStart = clock, .clockAtEnd = clock}, spans);
  trace.finish();
  const Json json = Json::parse(text);
  const auto span = spansOf(json).at(0);
  EXPECT_EQ(span["ts"], 2.0);  // microseconds: 3,000 + 9,000 - 10,000 ns
  EXPECT_EQ(span["dur"], 0.5);
  EXPECT_EQ(span["pid"], 1);
  EXPECT_EQ(json["ranks"][0]["clock_at_end"]["error_bound_ns"], 40);
}

constexpr int kRanks = 3, kSteps = 4, kMicroBatches = 2;
const std::vector<std::string> kManyBuckets{"--spawn",           "3",     "--steps",         "4",
                                            "--accumulate",      "2",     "--bucket-cap-mb", "0.02",
                                            "--first-bucket-mb", "0.005", "--clip-norm",     "0.5"};

// The total duration in seconds of the spans of a name in a step of a rank.
double secondsOf(const std::vector<Json>& spans, const std::string& name, int64_t rank, int64_t step) {
  double microseconds = 0;
  for (const auto& span : spans) {
    if (span["name"] == name && span["pid"] == rank && span["args"]["step"] == step) {
      microseconds += span["dur"].get<double>();
    }
  }
  return microseconds / 1e6;
}

TEST(Tracing, AllRanks_HaveEveryStepAndBucketAndTheMetricsTimes) {
  const TemporaryFolder folder;
  const auto finished = train(kManyBuckets + Flags{"--trace", folder / "t.json", "--verify-ranks"});
  ASSERT_EQ(finished.shellStatus(), 0) << finished.err;
  const auto trace = Json::parse(contentsOf(folder / "t.json"));
  const auto spans = spansOf(trace);
  expectNested(spans);
  EXPECT_EQ(trace["distributedInfo"]["world_size"], kRanks);
  EXPECT_EQ(trace["distributedInfo"]["collectives"], "gloo");
  const auto count = [&](const std::string& name, int64_t rank) {
    return std::count_if(spans.begin(), spans.end(),
                         [&](const Json& s) { return s["name"] == name && s["pid"] == rank; });
  };
  const auto all = records(finished.out);
  int64_t buckets = 0;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const auto& metrics = all.at(static_cast<size_t>(step));
    buckets += metrics["buckets"].get<int64_t>();
    constexpr double kNanoseconds = 5e-9;
    // Rank 0's clock is the axis: its spans are the metrics' durations.
    EXPECT_NEAR(secondsOf(spans, "ProfilerStep#" + std::to_string(step), 0, step), metrics["t_step_s"], kNanoseconds);
    EXPECT_NEAR(secondsOf(spans, "DistributedDataParallel.forward", 0, step), metrics["t_forward_s"], kNanoseconds);
    EXPECT_NEAR(secondsOf(spans, "Optimizer.step#AdamW.step", 0, step), metrics["t_optimizer_s"], kNanoseconds);
    EXPECT_NEAR(secondsOf(spans, "gloo:barrier", 0, step), metrics["t_barrier_s"], kNanoseconds);
  }
  ASSERT_GT(buckets, 3 * kSteps);
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(count("DistributedDataParallel.forward", rank), kSteps * kMicroBatches);
    EXPECT_EQ(count("backward", rank), kSteps * kMicroBatches);
    EXPECT_EQ(count("gloo:barrier", rank), kSteps);
    EXPECT_EQ(count("gloo:all_reduce", rank), buckets);
    EXPECT_EQ(count("queued", rank), buckets);
    EXPECT_EQ(count("bucket 0 gradients", rank), kSteps) << "gradients could not be attributed to buckets";
  }
}

TEST(Tracing, EveryBucket_IsReadyBeforeItIsHandedOver) {
  const TemporaryFolder folder;
  // Resumed: a backward outside any step rebuilds the reducer's buckets.
  ASSERT_EQ(train(kManyBuckets + Flags{"--checkpoint", folder / "c"}).shellStatus(), 0);
  const auto finished =
      train(kManyBuckets + Flags{"--steps", "6", "--resume", folder / "c", "--trace", folder / "t.json"});
  ASSERT_EQ(finished.shellStatus(), 0) << finished.err;
  const auto spans = spansOf(Json::parse(contentsOf(folder / "t.json")));
  std::map<std::tuple<int64_t, int64_t, int64_t>, double> ready;
  std::map<std::tuple<int64_t, int64_t, int64_t>, double> handedOver;
  for (const auto& span : spans) {
    EXPECT_GT(span["args"]["step"].get<int64_t>(), kSteps);
    if (span["args"].contains("bucket") && span["name"] != "queued") {
      const std::tuple key(span["pid"].get<int64_t>(), span["args"]["step"].get<int64_t>(),
                           span["args"]["bucket"].get<int64_t>());
      const bool isHandedOver = span["name"] == "gloo:all_reduce";
      (isHandedOver ? handedOver : ready)[key] =
          span["ts"].get<double>() + (isHandedOver ? 0 : span["dur"].get<double>());
    }
  }
  ASSERT_EQ(ready.size(), handedOver.size());
  ASSERT_GT(ready.size(), 20u);
  for (const auto& [key, when] : ready) {
    EXPECT_LE(when, handedOver.at(key));
  }
}

TEST(Tracing, OnOrOff_TheBitsAreTheSame) {
  const TemporaryFolder folder;
  const auto digest = [&](const std::vector<std::string>& more) {
    const auto finished = train(kManyBuckets + Flags{"--dropout", "0.1"} + more);
    EXPECT_EQ(finished.shellStatus(), 0) << finished.err;
    return records(finished.out).back().value("sha256", "none");
  };
  const auto plain = digest({});
  EXPECT_EQ(plain, digest({"--trace", folder / "t.json", "--measure-peak"}));
  EXPECT_NE(plain, digest({"--seed", "1"}));
}

TEST(Tracing, OneRankWithAndWithoutDdp_IsTraced) {
  const TemporaryFolder folder;
  for (const char* flag : {"--no-ddp", "--barrier"}) {
    ASSERT_EQ(train({"--steps", "2", flag, "--trace", folder / "t.json"}).shellStatus(), 0);
    const auto spans = spansOf(Json::parse(contentsOf(folder / "t.json")));
    EXPECT_GT(secondsOf(spans, "ProfilerStep#2", 0, 2), 0);
    EXPECT_EQ(secondsOf(spans, "gloo:all_reduce", 0, 2) > 0, std::string(flag) != "--no-ddp");
  }
}

TEST(Tracing, CompressedBuckets_AreSpansAsReducedOnesAre) {
  const TemporaryFolder folder;
  const auto finished = train(kManyBuckets + Flags{"--compress", "topk", "--trace", folder / "t.json"});
  ASSERT_EQ(finished.shellStatus(), 0) << finished.err;
  const auto trace = Json::parse(contentsOf(folder / "t.json"));
  const auto spans = spansOf(trace);
  const auto metrics = records(finished.out).at(kSteps);
  int64_t bytes = 0, filled = 0;
  for (const auto& span : spans) {
    if (span["pid"] == 1 && span["args"]["step"] == kSteps && span["args"].contains("bucket")) {
      EXPECT_GE(span["dur"].get<double>(), 0) << span;
      (span["name"] == "gloo:all_reduce" ? bytes : filled) += span["args"]["bytes"].get<int64_t>();
    }
  }
  EXPECT_EQ(bytes, metrics["gradient_bytes"].get<int64_t>());
  EXPECT_EQ(filled, bytes);
}

// The exit status of `unshare` with the arguments; 127 if it is not installed.
int unshareStatus(const std::string& arguments) {
  return WEXITSTATUS(std::system(("unshare " + arguments + " >/dev/null 2>&1").c_str()));
}

TEST(Tracing, RankWithAnotherMonotonicClock_IsAlignedWithinTheBound) {
  constexpr int64_t kAheadNs = 4'000'000'000'000;
  if (unshareStatus("--time --monotonic 4000 --fork true") != 0) {
    GTEST_SKIP() << "time namespaces cannot be made here (root, Linux 5.6, util-linux 2.36)";
  }
  const TemporaryFolder folder;
  const uint16_t port = freePort();
  Environment here = rankOf(0, 2, port), ahead = rankOf(1, 2, port);
  for (Environment* each : {&here, &ahead})
    each->insert({{"GLOO_DEVICE_TRANSPORT", ""}, {"TORCH_CPP_LOG_LEVEL", "ERROR"}});
  const std::vector<std::string> flags{"--model", "tiny", "--seq-length", "16",
                                       "--steps", "3",    "--trace",      folder / "t.json"};
  Program first(std::getenv("DDP_TRAIN"), flags, here);
  Program second("/usr/bin/unshare",
                 Flags{"--time", "--monotonic", "4000", "--fork", "--kill-child", std::getenv("DDP_TRAIN")} + flags,
                 ahead);
  const auto one = first.finish(kLimit), two = second.finish(kLimit);
  ASSERT_EQ(one.shellStatus(), 0) << one.err;
  ASSERT_EQ(two.shellStatus(), 0) << two.err;
  const auto trace = Json::parse(contentsOf(folder / "t.json"));
  for (const char* when : {"clock_at_start", "clock_at_end"}) {
    const auto& clock = trace["ranks"][1][when];
    EXPECT_LE(std::abs(clock["offset_ns"].get<int64_t>() + kAheadNs), clock["error_bound_ns"].get<int64_t>()) << clock;
  }
  // A barrier ends on no rank before it has begun on every rank.
  const double boundUs = std::max(trace["ranks"][1]["clock_at_start"]["error_bound_ns"].get<double>(),
                                  trace["ranks"][1]["clock_at_end"]["error_bound_ns"].get<double>()) /
                         1e3;
  std::map<int64_t, std::pair<double, double>> barriers;  // by step: last begin, first end
  for (const auto& span : spansOf(trace)) {
    if (span["name"] == "gloo:barrier") {
      const double begin = span["ts"].get<double>(), end = begin + span["dur"].get<double>();
      auto [at, isNew] = barriers.try_emplace(span["args"]["step"].get<int64_t>(), begin, end);
      at->second = {std::max(at->second.first, begin), std::min(at->second.second, end)};
    }
  }
  ASSERT_EQ(barriers.size(), 3u);
  for (const auto& [step, times] : barriers) {
    EXPECT_LE(times.first, times.second + boundUs) << step;
  }
}

TEST(Utilisation, PeakThatIsSaid_MakesMfuAndNothingElse) {
  const auto finished = train({"--spawn", "2", "--steps", "2", "--peak-flops", "4e9"});
  ASSERT_EQ(finished.shellStatus(), 0) << finished.err;
  for (const auto& record : records(finished.out)) {
    if (record["event"] == "step") {
      EXPECT_NEAR(record["mfu"].get<double>(), 100 * record["model_flops_per_s"].get<double>() / 8e9, 1e-6);
      EXPECT_NEAR(record["overlap"].get<double>(),
                  100 * (1 - record["t_ar_exposed_s"].get<double>() / record["t_ar_s"].get<double>()), 1e-6);
    }
  }
}

TEST(Utilisation, PeakThatIsMeasured_IsPositiveAndPlainRunsHaveNone) {
  for (const char* precision : {"fp32", "fp16"}) {  // libtorch 1.13 itself multiplies no fp16 matrices
    const auto measured = train({"--spawn", "2", "--steps", "2", "--measure-peak", "--precision", precision});
    ASSERT_EQ(measured.shellStatus(), 0) << measured.err;
    EXPECT_GT(records(measured.out).back()["median"]["mfu"].get<double>(), 0);
  }
  const auto plain = records(train({"--steps", "2", "--no-ddp"}).out);
  EXPECT_TRUE(plain.back()["median"]["mfu"].is_null());
  EXPECT_TRUE(plain.back()["median"]["overlap"].is_null()) << "there was no all-reduce to hide";
}

void expectRefused(const std::vector<std::string>& flags, const std::string& reason, int status = 2) {
  const auto finished = train(flags);
  EXPECT_EQ(finished.shellStatus(), status) << finished.err;
  EXPECT_NE(finished.err.find(reason), std::string::npos) << finished.err;
  EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
}

TEST(TracingOptions, BadInput_IsOneLineBeforeTheFirstStep) {
  const TemporaryFolder folder;
  expectRefused({"--measure-peak", "--peak-flops", "1e9"}, "--measure-peak and --peak-flops exclude each other");
  expectRefused({"--peak-flops", "-1"}, "--peak-flops");
  expectRefused({"--steps", "1", "--metrics", folder / "m", "--trace", folder / "missing/t"},
                "cannot write " + folder / "missing/t");
  EXPECT_FALSE(std::filesystem::exists(folder / "m")) << "steps were run";
}

TEST(TracingOptions, RanksThatDiffer_AreRefusedAtTheStart) {
  const TemporaryFolder folder;
  expectRanksDisagree({{"--steps", "1", "--trace", folder / "t.json"}, {"--steps", "1"}}, "tracing: ");
  EXPECT_FALSE(std::filesystem::exists(folder / "t.json"));
}

TEST(FullDisk, Trace_IsWholeOrNotThere) {
  const TemporaryFolder folder;
  Program process =
      startTraining({"--steps", "40", "--metrics", "/dev/null", "--trace", folder / "t.json"}, {}, 10'000);
  const auto finished = process.finish(kLimit);
  EXPECT_EQ(finished.shellStatus(), 1) << finished.err;
  EXPECT_NE(finished.err.find("cannot write"), std::string::npos) << finished.err;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path)) << "a piece was left";
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
