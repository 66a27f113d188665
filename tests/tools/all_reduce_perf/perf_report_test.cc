#include "tools/all_reduce_perf/perf_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace gloo_bypass {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// One round of `iterations` equal iterations of `us` each.
RankMeasurement equalIterations(double us, unsigned iterations, std::uint64_t wrong = 0) {
  RankSample sample;
  sample.wallSeconds = us * 1e-6 * iterations;
  sample.cpuSeconds = us * 0.5e-6 * iterations;
  sample.iterationNs.assign(iterations, static_cast<std::int64_t>(us * 1000));
  return {.rounds = {sample}, .wrong = wrong};
}

PerfOptions twoTransports() {
  PerfOptions options;
  options.transports = {"TCP", "DPDK"};
  options.rounds = 1;
  options.iterations = 4;
  return options;
}

TEST(Summarize, TwoTransports_ComputesTimesBandwidthAndRatio) {
  const SizeResult result =
      summarize(twoTransports(), 4000,
                {{equalIterations(100, 4), equalIterations(300, 4)}, {equalIterations(50, 4), equalIterations(50, 4)}});
  EXPECT_EQ(result.count, 1000u);
  const TransportResult& tcp = result.transports.at(0);
  const TransportResult& dpdk = result.transports.at(1);
  EXPECT_DOUBLE_EQ(tcp.timeUs, 200);  // mean over ranks
  EXPECT_DOUBLE_EQ(tcp.p50Us, 200);   // between four of 100 and four of 300
  EXPECT_DOUBLE_EQ(tcp.p99Us, 300);
  EXPECT_DOUBLE_EQ(tcp.algbwGBs, 4000 / 200e-6 / 1e9);
  EXPECT_DOUBLE_EQ(tcp.busbwGBs, tcp.algbwGBs);
  EXPECT_DOUBLE_EQ(tcp.ratio, 1);
  EXPECT_DOUBLE_EQ(dpdk.ratio, 4);
  EXPECT_DOUBLE_EQ(dpdk.ratioOfMeans, 4);
  EXPECT_DOUBLE_EQ(dpdk.cpuPercent, 50);
}

TEST(Summarize, RoundsWithComputing_TellWhatACallAdds) {
  PerfOptions options = twoTransports();
  options.transports = {"TCP"};
  options.computeMilliseconds = 2;
  RankMeasurement first = equalIterations(100, 4), second = equalIterations(300, 4);
  first.rounds[0].roundsSeconds = second.rounds[0].roundsSeconds = 4 * 2.5e-3;
  first.rounds[0].roundsAloneSeconds = 4 * 2.0e-3;
  second.rounds[0].roundsAloneSeconds = 4 * 2.2e-3;
  first.rounds[0].cpuSeconds = second.rounds[0].cpuSeconds = 4 * 2.5e-3;
  const SizeResult result = summarize(options, 4000, {{first, second}});
  const TransportResult& tcp = result.transports.at(0);
  EXPECT_DOUBLE_EQ(tcp.timeUs, 200);  // of the calls alone
  EXPECT_DOUBLE_EQ(tcp.roundWithUs, 2500);
  EXPECT_DOUBLE_EQ(tcp.roundAloneUs, 2100);
  EXPECT_DOUBLE_EQ(tcp.addsUs, 400);
  EXPECT_DOUBLE_EQ(tcp.cpuPercent, 100);  // of the rounds
  EXPECT_EQ(tcp.afterLastP50Us, std::nullopt);
  EXPECT_THAT(rowsText(options, result), HasSubstr("N/A"));
  EXPECT_THAT(columnsText(options), HasSubstr("adds"));
  EXPECT_THAT(rowsText(options, result), HasSubstr("400.0"));
  EXPECT_DOUBLE_EQ(toJson(options, result)["transports"][0]["adds_us"].get<double>(), tcp.addsUs);
  options.computeMilliseconds = 0;
  EXPECT_THAT(columnsText(options), Not(HasSubstr("adds")));
  EXPECT_FALSE(toJson(options, result)["transports"][0].contains("adds_us"));
}

TEST(Summarize, CallsAfterTheLastRankHasCome_AreTimedFromThere) {
  PerfOptions options = twoTransports();
  options.transports = {"TCP"};
  options.computeMilliseconds = 2;
  options.iterations = 2;
  RankMeasurement early = equalIterations(500, 2), late = equalIterations(100, 2);
  early.rounds[0].beginNs = {1'000'000, 9'400'000};
  early.rounds[0].endNs = {1'430'000, 9'450'000};
  late.rounds[0].beginNs = {1'400'000, 9'000'000};
  late.rounds[0].endNs = {1'420'000, 9'440'000};
  const SizeResult result = summarize(options, 4000, {{early, late}});
  EXPECT_DOUBLE_EQ(result.transports[0].afterLastP50Us.value(), 35);  // of 20, 30, 40 and 50 us
  EXPECT_DOUBLE_EQ(toJson(options, result)["transports"][0]["after_last_p50_us"].get<double>(), 35);
  EXPECT_THAT(rowsText(options, result), HasSubstr("35.00"));
}

TEST(FirstCalls, OfTwoRanks_AreMeansInTheirOrder) {
  const FirstCalls calls = summarizeFirstCalls("UDP", 8192, {{900'000, 10'000, 20'000}, {700'000, 30'000, 20'000}});
  EXPECT_THAT(calls.callUs, ::testing::ElementsAre(800, 20, 20));
  const nlohmann::json json = toJson(calls);
  EXPECT_EQ(json["transport"], "UDP");
  EXPECT_DOUBLE_EQ(json["mean_us"].get<double>(), 280);
  EXPECT_DOUBLE_EQ(json["p50_us"].get<double>(), 20);
  EXPECT_EQ(json["call_us"].size(), 3u);
  EXPECT_EQ(firstCallsText(calls),
            "# first 3 calls of 8192 bytes, UDP: the first 800.0 us, mean 280.0, p50 20.00, p99 784.4\n");
}

TEST(Summarize, WrongElements_AreSummedOverRanks) {
  PerfOptions options = twoTransports();
  options.transports = {"TCP"};
  const std::vector<std::vector<RankMeasurement>> measured{{equalIterations(1, 4, 2), equalIterations(1, 4, 3)}};
  EXPECT_EQ(summarize(options, 4, measured).transports[0].wrong, 5u);
  options.checkIterations = 0;
  EXPECT_EQ(summarize(options, 4, measured).transports[0].wrong, std::nullopt);
}

TEST(RankMeasurementJson, RoundTrip_KeepsEverything) {
  RankMeasurement before = equalIterations(12.5, 3, 7);
  before.rounds[0].roundsSeconds = 0.5;
  before.rounds[0].roundsAloneSeconds = 0.25;
  before.rounds[0].beginNs = {3, 5};
  before.rounds[0].endNs = {4, 6};
  const auto after = nlohmann::json::parse(nlohmann::json(before).dump()).get<RankMeasurement>();
  EXPECT_EQ(after.wrong, 7u);
  ASSERT_EQ(after.rounds.size(), 1u);
  EXPECT_EQ(after.rounds[0].iterationNs, before.rounds[0].iterationNs);
  EXPECT_DOUBLE_EQ(after.rounds[0].wallSeconds, before.rounds[0].wallSeconds);
  EXPECT_DOUBLE_EQ(after.rounds[0].cpuSeconds, before.rounds[0].cpuSeconds);
  EXPECT_DOUBLE_EQ(after.rounds[0].roundsSeconds, 0.5);
  EXPECT_DOUBLE_EQ(after.rounds[0].roundsAloneSeconds, 0.25);
  EXPECT_EQ(after.rounds[0].beginNs, before.rounds[0].beginNs);
  EXPECT_EQ(after.rounds[0].endNs, before.rounds[0].endNs);
}

TEST(Table, SeveralTransports_HaveTransportAndRatioColumns) {
  const PerfOptions options = twoTransports();
  const std::string columns = columnsText(options);
  EXPECT_THAT(columns, HasSubstr("transport"));
  EXPECT_THAT(columns, HasSubstr("ratio"));
  const SizeResult result =
      summarize(options, 4000,
                {{equalIterations(100, 4), equalIterations(100, 4)}, {equalIterations(50, 4), equalIterations(50, 4)}});
  std::istringstream row(rowsText(options, result));
  std::vector<std::string> words{std::istream_iterator<std::string>(row), {}};
  EXPECT_THAT(words, ::testing::ElementsAre("4000", "1000", "float", "sum", "TCP", "100.0", "0.04", "0.04", "0",
                                            "100.0", "100.0", "1.00", "4000", "1000", "float", "sum", "DPDK", "50.00",
                                            "0.08", "0.08", "0", "50.00", "50.00", "2.00"));
}

TEST(Table, OneTransport_HasNcclTestsColumns) {
  PerfOptions options;
  const std::string columns = columnsText(options);
  EXPECT_THAT(columns, Not(HasSubstr("transport")));
  EXPECT_THAT(columns, Not(HasSubstr("ratio")));
  for (const char* name : {"size", "count", "type", "redop", "time", "algbw", "busbw", "#wrong", "p50", "p99"})
    EXPECT_THAT(columns, HasSubstr(name));
}

TEST(Table, HeaderAndRows_HaveTheSameWidth) {
  for (const bool cpu : {false, true}) {
    PerfOptions options = twoTransports();
    options.cpuColumn = cpu;
    const std::string columns = columnsText(options);
    const std::string rows =
        rowsText(options, summarize(options, 4, {{equalIterations(1, 4)}, {equalIterations(1, 4)}}));
    EXPECT_EQ(columns.find('\n'), rows.find('\n'));
  }
}

TEST(Table, Footer_AveragesBusBandwidthAndTellsWrong) {
  PerfOptions options = twoTransports();
  SizeResult small, large;
  small.transports = {{.busbwGBs = 1, .wrong = 0}, {.busbwGBs = 2, .wrong = 0}};
  large.transports = {{.busbwGBs = 3, .wrong = 0}, {.busbwGBs = 6, .wrong = 9}};
  const std::vector<SizeResult> results{small, large};
  const std::string text = footerText(options, results);
  EXPECT_THAT(text, HasSubstr("# Avg bus bandwidth    : 2 (TCP)"));
  EXPECT_THAT(text, HasSubstr("# Avg bus bandwidth    : 4 (DPDK)"));
  EXPECT_THAT(text, HasSubstr("9 FAILED"));
}

TEST(AllReduceBandwidth, TwoRanks_BusEqualsAlgorithm) {
  const Bandwidth bandwidth = allReduceBandwidth(1'000'000'000, 0.5, 2);
  EXPECT_DOUBLE_EQ(bandwidth.algorithmGBs, 2);
  EXPECT_DOUBLE_EQ(bandwidth.busGBs, 2);
}
TEST(AllReduceBandwidth, FourRanks_BusIsOneAndAHalfTimes) {
  const Bandwidth bandwidth = allReduceBandwidth(3'000'000, 0.001, 4);
  EXPECT_DOUBLE_EQ(bandwidth.algorithmGBs, 3);
  EXPECT_DOUBLE_EQ(bandwidth.busGBs, 4.5);
}
TEST(AllReduceBandwidth, OneRankOrNoTime_IsZero) {
  EXPECT_DOUBLE_EQ(allReduceBandwidth(1000, 1, 1).busGBs, 0);
  EXPECT_DOUBLE_EQ(allReduceBandwidth(1000, 0, 2).algorithmGBs, 0);
}

}  // namespace
}  // namespace gloo_bypass
