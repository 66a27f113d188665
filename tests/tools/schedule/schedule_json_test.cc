#include "tools/schedule/schedule_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gloo_bypass {
namespace {

using namespace collectives;
using Json = nlohmann::json;

TEST(ScheduleJson_OneShot, TwoRanks_HasEachStep) {
  const Json json =
      scheduleJson(*findAlgorithm(Kind::kAllReduce, Algorithm::kOneShot), {.size = 2}, {Algorithm::kOneShot, 4096}, 64);
  EXPECT_EQ(json, Json::parse(R"({"schema": "gloo-bypass/schedule/1", "kind": "all-reduce", "algorithm": "one-shot",
      "ranks": 2, "bytes": 64, "parts": 1, "part_bytes": 4096, "slices_under_way": 4, "steps_of_ranks": [
        [{"round": 0, "action": "send", "parts": [0, 1], "peers": [1], "numbers": [0], "waits_for": 0, "before": [1]},
         {"round": 0, "action": "reduce", "parts": [0, 1], "peers": [0, 1], "numbers": [-1, 0], "waits_for": 1,
          "before": []}],
        [{"round": 0, "action": "send", "parts": [0, 1], "peers": [0], "numbers": [0], "waits_for": 0, "before": [1]},
         {"round": 0, "action": "reduce", "parts": [0, 1], "peers": [0, 1], "numbers": [0, -1], "waits_for": 1,
          "before": []}]]})"));
}

TEST(ScheduleJson_EveryRow, HasAsManyMessagesSentAsReceived) {
  constexpr int kHosts[] = {0, 0, 1, 1, 2};
  for (const AlgorithmRow& row : algorithms()) {
    const Json json = scheduleJson(row, {.size = 5, .hostOf = kHosts}, {row.algorithm, 4096}, 1 << 20);
    std::size_t sent = 0, received = 0;
    for (std::size_t rank = 0; rank < 5; ++rank) {
      for (const Json& step : json["steps_of_ranks"][rank]) {
        for (const Json& peer : step["peers"]) {
          if (peer.get<std::size_t>() != rank) ++(step["action"] == "send" ? sent : received);
        }
      }
    }
    EXPECT_EQ(sent, received) << nameOf(row.kind) << " by " << nameOf(row.algorithm);
    EXPECT_GT(sent, 0u) << nameOf(row.kind) << " by " << nameOf(row.algorithm);
  }
}

}  // namespace
}  // namespace gloo_bypass
