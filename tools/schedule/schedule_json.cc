#include "tools/schedule/schedule_json.h"

#include <nlohmann/json.hpp>

namespace gloo_bypass {
namespace {

using collectives::Action;
using collectives::Step;
using Json = nlohmann::json;

const char* nameOf(Action action) {
  constexpr const char* kNames[] = {"send", "receive", "reduce"};  // in the order of Action
  return kNames[static_cast<std::size_t>(action)];
}

Json jsonOf(const Step& step) {
  return {{"round", step.round},  {"action", nameOf(step.action)}, {"parts", {step.parts.begin, step.parts.end}},
          {"peers", step.peers},  {"numbers", step.numbers},       {"waits_for", step.waitsFor},
          {"before", step.before}};
}

}  // namespace

Json scheduleJson(const collectives::AlgorithmRow& row, const collectives::Place& place,
                  const collectives::Choice& choice, std::size_t bytes) {
  int parts = 0;
  Json steps = Json::array();
  for (int rank = 0; rank < place.size; ++rank) {
    collectives::Place own = place;
    own.rank = rank;
    const collectives::Schedule schedule = row.make(own);
    parts = schedule.parts;
    Json ofRank = Json::array();
    for (const Step& step : schedule.steps) ofRank.push_back(jsonOf(step));
    steps.push_back(std::move(ofRank));
  }
  return {{"schema", "gloo-bypass/schedule/1"},
          {"kind", nameOf(row.kind)},
          {"algorithm", nameOf(row.algorithm)},
          {"ranks", place.size},
          {"bytes", bytes},
          {"parts", parts},
          {"part_bytes", choice.partBytes},
          {"slices_under_way", collectives::kSlicesUnderWay},
          {"steps_of_ranks", std::move(steps)}};
}

}  // namespace gloo_bypass
