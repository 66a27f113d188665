// Step markers, received by a real socket.
#include "trainer/metrics/step_markers.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/trainer/metrics/marker_receiver.h"
#include "tests/trainer/tiny_training.h"
#include "tools/common/error.h"
#include "trainer/config/marker_address.h"

namespace gloo_bypass::trainer::testing {
namespace {

TEST(MarkerAddress, AddressWithAndWithoutPort_IsRead) {
  const auto plain = parseMarkerAddress("10.32.0.1");
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(ntohs(plain->sin_port), 9999);
  EXPECT_EQ(ntohl(plain->sin_addr.s_addr), 0x0a200001u);
  EXPECT_EQ(ntohs(parseMarkerAddress("127.0.0.1:7")->sin_port), 7);
}

TEST(MarkerAddress, AnythingElse_IsNone) {
  for (const char* text : {"", "host", "10.0.0", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:9x", ":9999",
                           "::1", "10.0.0.1:9999:1"}) {
    EXPECT_FALSE(parseMarkerAddress(text).has_value()) << text;
  }
}

TEST(StepMarkers, EachStep_ComesFromItsPortAndSaysWhich) {
  MarkerReceiver receiver;
  StepMarkers markers("127.0.0.1:" + std::to_string(receiver.port()));
  for (const uint64_t step : {uint64_t{1}, uint64_t{2}, uint64_t{25'537}}) {
    markers.prepare(step);
    markers.sendFirst();
    markers.sendLast();
  }
  const std::vector<ReceivedMarker> expected{
      {40'001, "gloo-bypass step 1 first\n"},     {40'001, "gloo-bypass step 1 last\n"},
      {40'002, "gloo-bypass step 2 first\n"},     {40'002, "gloo-bypass step 2 last\n"},
      {40'001, "gloo-bypass step 25537 first\n"}, {40'001, "gloo-bypass step 25537 last\n"}};
  EXPECT_EQ(receiver.receive(), expected);
  EXPECT_EQ(markers.toJson()["sent"], 6);
  EXPECT_EQ(markers.failed(), 0u);
}

TEST(StepMarkers, NobodyListens_EveryMarkerIsSentStill) {
  uint16_t port = 0;
  {
    const MarkerReceiver gone;
    port = gone.port();
  }
  StepMarkers markers("127.0.0.1:" + std::to_string(port));
  for (uint64_t step = 1; step <= 3; ++step) {
    markers.prepare(step);
    markers.sendFirst();
    markers.sendLast();
  }
  EXPECT_EQ(markers.failed(), 0u);
}

TEST(StepMarkers, PortInUse_IsCountedAndTheNextStepGoesOn) {
  MarkerReceiver receiver;
  const MarkerReceiver inTheWay(40'005, INADDR_ANY);
  StepMarkers markers("127.0.0.1:" + std::to_string(receiver.port()));
  for (const uint64_t step : {5, 6}) {
    markers.prepare(step);
    markers.sendFirst();
    markers.sendLast();
  }
  EXPECT_EQ(markers.failed(), 2u);
  EXPECT_NE(markers.lastError().find("port 40005"), std::string::npos) << markers.lastError();
  EXPECT_EQ(receiver.receive().size(), 2u);
}

TEST(StepMarkers, AddressThatCannotBeSentTo_IsRefused) {
  EXPECT_THROW(StepMarkers("255.255.255.255"), ProgramError);
  EXPECT_THROW(StepMarkers("nonsense"), ProgramError);
}

// The program itself.
ProgramResult trainTwoRanks(std::vector<std::string> flags) {
  flags.insert(flags.end(), {"--spawn", "2", "--bucket-cap-mb", "0.02", "--first-bucket-mb", "0.005"});
  return train(flags);
}

nlohmann::json lastLine(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  return nlohmann::json::parse(text.substr(text.rfind('\n', end) + 1));
}

TEST(MarkedTraining, TwoRanks_OnePairOfMarkersAStepWhateverTheBuckets) {
  MarkerReceiver receiver;
  const auto finished = trainTwoRanks(
      {"--steps", "3", "--accumulate", "2", "--step-markers", "127.0.0.1:" + std::to_string(receiver.port())});
  ASSERT_EQ(finished.shellStatus(), 0) << finished.err;
  std::vector<ReceivedMarker> expected;
  for (int step = 1; step <= 3; ++step) {
    for (const char* which : {"first", "last"}) {
      expected.push_back(
          {static_cast<uint16_t>(40'000 + step), "gloo-bypass step " + std::to_string(step) + " " + which + "\n"});
    }
  }
  EXPECT_EQ(receiver.receive(), expected);
  const auto summary = lastLine(finished.out);
  EXPECT_EQ(summary["step_markers"]["sent"], 6) << summary;
  EXPECT_EQ(summary["step_markers"]["failed"], 0);
}

TEST(MarkedTraining, WrongAddress_IsOneLineBeforeAnythingStarts) {
  for (const char* address : {"nonsense", "10.0.0.1:0", "255.255.255.255"}) {
    const auto finished = trainTwoRanks({"--steps", "1", "--step-markers", address});
    EXPECT_EQ(finished.shellStatus(), 2) << finished.err;
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
    EXPECT_NE(finished.err.find("--step-markers"), std::string::npos) << finished.err;
  }
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
