#include "tools/all_reduce_perf/perf_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/all_reduce_perf/device_factory.h"
#include "tools/common/error.h"

namespace gloo_bypass {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PerfOptions parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "all_reduce_perf");
  return std::get<PerfOptions>(parseCommandLine(static_cast<int>(arguments.size()), arguments.data()));
}

std::string problemOf(const std::vector<const char*>& arguments) {
  try {
    parse(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(PerfOptions, NoArguments_AreThoseOfNcclTests) {
  const PerfOptions options = parse({});
  EXPECT_EQ(options.minBytes, 32u << 20);
  EXPECT_EQ(options.maxBytes, 32u << 20);
  EXPECT_EQ(options.iterations, 20u);
  EXPECT_EQ(options.warmupIterations, 5u);
  EXPECT_EQ(options.checkIterations, 1u);
  EXPECT_EQ(options.dataType, DataType::kFloat);
  EXPECT_THAT(options.transports, ElementsAre("TCP"));
  EXPECT_EQ(options.effectiveRounds(), 1u);
}

TEST(PerfOptions, Suffixes_ArePowersOf1024) {
  const PerfOptions options = parse({"-b", "8", "-e", "2G", "-i", "4096K"});
  EXPECT_EQ(options.minBytes, 8u);
  EXPECT_EQ(options.maxBytes, 2ull << 30);
  EXPECT_EQ(options.stepBytes, 4u << 20);
  EXPECT_EQ(parse({"-e", "128M"}).maxBytes, 128u << 20);
}

TEST(PerfOptions, OnlyOneBoundGiven_TheDefaultGivesWay) {
  EXPECT_EQ(parse({"-e", "1K"}).minBytes, 1024u);
  EXPECT_EQ(parse({"-b", "64M"}).maxBytes, 64u << 20);
}

TEST(PerfOptions, LongNames_AreNcclTests) {
  const PerfOptions options = parse({"--minbytes", "8", "--maxbytes", "64", "--stepfactor", "2", "--iters", "3",
                                     "--warmup_iters", "0", "--check", "2", "--datatype", "int64", "--op", "max"});
  EXPECT_EQ(options.stepFactor, 2u);
  EXPECT_EQ(options.iterations, 3u);
  EXPECT_EQ(options.warmupIterations, 0u);
  EXPECT_EQ(options.checkIterations, 2u);
  EXPECT_EQ(options.dataType, DataType::kInt64);
  EXPECT_EQ(options.reduceOp, ReduceOp::kMax);
}

TEST(PerfOptions, EachWrongValue_IsNamedWithWhatIsAllowed) {
  EXPECT_THAT(problemOf({"-b", "3x"}), HasSubstr("--minbytes"));
  EXPECT_THAT(problemOf({"-b", "-4"}), HasSubstr("--minbytes"));
  EXPECT_THAT(problemOf({"-b", "8", "-e", "4"}), HasSubstr("larger than --maxbytes 4"));
  EXPECT_THAT(problemOf({"-b", "4", "-d", "double"}), HasSubstr("less than one double"));
  EXPECT_THAT(problemOf({"-d", "quad"}), HasSubstr("'quad' is none of int8"));
  EXPECT_THAT(problemOf({"-o", "avg"}), HasSubstr("none of sum, prod, min, max"));
  EXPECT_THAT(problemOf({"--algorithm", "tree"}), HasSubstr("halving_doubling"));
  EXPECT_THAT(problemOf({"--transports", "ROCE"}),
              HasSubstr("unknown transport 'ROCE'; known are TCP, DPDK, UDP, RDMA, GLOO_IBVERBS"));
  EXPECT_THAT(problemOf({"--transports", "tcp"}), HasSubstr("unknown transport 'tcp'"));
  EXPECT_THAT(problemOf({"--transports", "TCP,TCP"}), HasSubstr("twice"));
  EXPECT_THAT(problemOf({"-f", "1"}), HasSubstr("--stepfactor"));
  EXPECT_THAT(problemOf({"-f", "2", "-i", "4"}), HasSubstr("excludes"));
  EXPECT_THAT(problemOf({"-n", "0"}), HasSubstr("--iters"));
  EXPECT_THAT(problemOf({"--segment-bytes", "1M", "--algorithm", "bcube"}), HasSubstr("--segment-bytes"));
  EXPECT_THAT(problemOf({"--algorithm", "ring_chunked", "-e", "3G"}), HasSubstr("less than 2G"));
  EXPECT_THAT(problemOf({"-b", "4", "-e", "1G", "-i", "4"}), HasSubstr("larger step"));
  EXPECT_THAT(problemOf({"--ranks", "0"}), HasSubstr("--ranks"));
  EXPECT_THAT(problemOf({"--compute", "-1"}), HasSubstr("--compute"));
  EXPECT_THAT(problemOf({"--compute", "nan"}), HasSubstr("--compute"));
  EXPECT_THAT(problemOf({"--first", "-1"}), HasSubstr("--first"));
  EXPECT_THAT(problemOf({"--idle", "1", "--compute", "2", "--ranks", "2"}), HasSubstr("without --compute"));
  EXPECT_THAT(problemOf({"--idle", "1", "--first", "2", "--ranks", "2"}), HasSubstr("without --compute"));
  EXPECT_THAT(problemOf({"-n", "1000000", "--rounds", "2"}), HasSubstr("samples"));
  EXPECT_THAT(problemOf({"--no-such-flag"}), HasSubstr("--no-such-flag"));
  EXPECT_THAT(problemOf({"surplus"}), HasSubstr("surplus"));
}

TEST(PerfOptions, OwnCollectives_AreChosenByTransportAndAlgorithm) {
  if (const std::string problem = transportProblem("UDP"); !problem.empty()) GTEST_SKIP() << problem;
  EXPECT_THAT(parse({"--transports", "TCP,UDP", "--collectives", "gloo,own"}).transports,
              ElementsAre("TCP", "UDP", "UDP/own"));
  const PerfOptions options = parse({"--transports", "UDP,UDP/own,UDP/own:ring,UDP/own:one-shot"});
  EXPECT_THAT(options.transports, ElementsAre("UDP", "UDP/own", "UDP/own:ring", "UDP/own:one-shot"));
  EXPECT_THAT(ownAlgorithmOf("UDP/own:one-shot"), "one-shot");
  EXPECT_THAT(ownAlgorithmOf("UDP/own"), "");
  EXPECT_THAT(linkOf("UDP/own:one-shot"), "UDP");
  EXPECT_THAT(linkOf("UDP"), "UDP");
  const PerfOptions named = parse({"--transports", "UDP,UDP/own:ring", "--collectives", "own"});
  EXPECT_THAT(named.transports, ElementsAre("UDP/own", "UDP/own:ring"));
  EXPECT_THAT(problemOf({"--transports", "UDP/own:/own"}), HasSubstr("UDP/own:/own"));
  EXPECT_THAT(problemOf({"--transports", "UDP/own:rung"}), AllOf(HasSubstr("'rung'"), HasSubstr("one-shot, direct")));
  EXPECT_THAT(problemOf({"--transports", "UDP/own:"}), HasSubstr("no algorithm ''"));
  EXPECT_THAT(problemOf({"--transports", "UDP/own:binomial"}), HasSubstr("no algorithm 'binomial' for all-reduce"));
  EXPECT_THAT(problemOf({"--transports", "TCP/own"}), HasSubstr("TCP has no collectives of gloo-bypass"));
  EXPECT_THAT(problemOf({"--transports", "UDP:ring"}), HasSubstr("unknown transport 'UDP:ring'"));
}

TEST(PerfOptions, OptionsWithoutEffect_AreRefused) {
  EXPECT_THAT(problemOf({"--ranks", "2", "--store-dir", "somewhere"}), HasSubstr("excludes"));
  EXPECT_THAT(problemOf({"--deadline", "5"}), HasSubstr("--ranks"));
  if (const std::string problem = transportProblem("UDP"); !problem.empty()) GTEST_SKIP() << problem;
  EXPECT_THAT(problemOf({"--transports", "UDP/own", "--algorithm", "bcube"}), HasSubstr("--algorithm is Gloo's"));
  EXPECT_THAT(problemOf({"--transports", "UDP/own", "--segment-bytes", "1M"}), HasSubstr("--segment-bytes is Gloo's"));
  EXPECT_EQ(problemOf({"--transports", "UDP,UDP/own", "--algorithm", "bcube"}), "accepted");
}

TEST(PerfOptions, TransportWithBoundBuffersOnly_WantsAnAlgorithmThatUsesThem) {
  if (const std::string problem = transportProblem("GLOO_IBVERBS"); !problem.empty()) GTEST_SKIP() << problem;
  EXPECT_EQ(problemOf({"--transports", "TCP,GLOO_IBVERBS", "--algorithm", "ring_chunked"}), "accepted");
  if (!hasBoundBuffersOnly("GLOO_IBVERBS")) {
    EXPECT_EQ(problemOf({"--transports", "TCP,GLOO_IBVERBS"}), "accepted");  // this Gloo's has unbound buffers
    return;
  }
  EXPECT_THAT(problemOf({"--transports", "TCP,GLOO_IBVERBS"}),
              AllOf(HasSubstr("GLOO_IBVERBS"), HasSubstr("--algorithm ring_chunked"), HasSubstr("not ring")));
  EXPECT_THAT(problemOf({"--transports", "GLOO_IBVERBS", "--algorithm", "bcube"}), HasSubstr("not bcube"));
}

TEST(PerfOptions, EveryProblem_IsOneLine) {
  for (const auto& arguments : std::vector<std::vector<const char*>>{{"-b", "3x"}, {"-b"}, {"-d", "quad"}, {"--zz"}})
    EXPECT_EQ(problemOf(arguments).find('\n'), std::string::npos) << problemOf(arguments);
}

TEST(PerfOptions, Help_SaysWhatIsMeasured) {
  const char* arguments[] = {"all_reduce_perf", "--help"};
  const CommandLine commandLine = parseCommandLine(2, arguments);
  EXPECT_THAT(std::get<std::string>(commandLine), HasSubstr("What is measured"));
}

TEST(ScanSizes, Factor_Multiplies) {
  EXPECT_THAT(scanSizes(parse({"-b", "4", "-e", "100", "-f", "3"})), ElementsAre(4, 12, 36));
}
TEST(ScanSizes, Step_AddsAndIncludesTheEnd) {
  EXPECT_THAT(scanSizes(parse({"-b", "8", "-e", "24", "-i", "8"})), ElementsAre(8, 16, 24));
}
TEST(ScanSizes, NotAMultipleOfTheElement_IsRoundedDownOnce) {
  EXPECT_THAT(scanSizes(parse({"-b", "9", "-e", "13", "-i", "4"})), ElementsAre(8, 12));
  EXPECT_THAT(scanSizes(parse({"-b", "8", "-e", "20", "-i", "8", "-d", "double"})), ElementsAre(8, 16));
}
TEST(ScanSizes, OneSize_IsThatSize) { EXPECT_THAT(scanSizes(parse({"-b", "4", "-e", "4"})), ElementsAre(4)); }

}  // namespace
}  // namespace gloo_bypass
