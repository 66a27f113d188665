// Options that are one of a few names. Each table is what --help lists, what the command line takes, and what records
// say, in this order.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config/options.h"

namespace gloo_bypass::trainer {

template <typename Value>
using NamedChoices = std::vector<std::pair<std::string, Value>>;

template <typename Value>
std::vector<std::string> namesOf(const NamedChoices<Value>& choices) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) {
    names.push_back(name);
  }
  return names;
}

// `wanted` must be one of them.
template <typename Value>
const std::string& nameOf(const NamedChoices<Value>& choices, Value wanted) {
  return std::find_if(choices.begin(), choices.end(), [&](const auto& choice) { return choice.second == wanted; })
      ->first;
}

// `name` must be one of them.
template <typename Value>
Value valueOf(const NamedChoices<Value>& choices, const std::string& name) {
  return std::find_if(choices.begin(), choices.end(), [&](const auto& choice) { return choice.first == name; })->second;
}

inline const NamedChoices<Precision> kPrecisions{{"fp32", Precision::kFloat32},
                                                 {"fp64", Precision::kFloat64},
                                                 {"bf16", Precision::kBFloat16},
                                                 {"fp16", Precision::kFloat16}};
inline const NamedChoices<Tail> kTails{{"drop", Tail::kDrop}, {"pad", Tail::kPad}, {"weighted", Tail::kWeighted}};
inline const NamedChoices<Passages> kPassages{
    {"lines", Passages::kLines}, {"none", Passages::kNone}, {"paragraphs", Passages::kParagraphs}};
inline const NamedChoices<ScheduleShape> kScheduleShapes{
    {"constant", ScheduleShape::kConstant}, {"linear", ScheduleShape::kLinear}, {"cosine", ScheduleShape::kCosine}};
inline const NamedChoices<RateScaling> kRateScalings{
    {"none", RateScaling::kNone}, {"linear", RateScaling::kLinear}, {"sqrt", RateScaling::kSquareRoot}};
inline const NamedChoices<Collectives> kCollectives{{"gloo", Collectives::kGloo}, {"own", Collectives::kOwn}};
inline const NamedChoices<Sums> kSums{
    {"reduced", Sums::kReduced}, {"ordered", Sums::kOrdered}, {"compensated", Sums::kCompensated}};
inline const NamedChoices<CompressionMethod> kCompressions{
    {"bf16", CompressionMethod::kBf16}, {"fp16", CompressionMethod::kFp16},
    {"none", CompressionMethod::kNone}, {"powersgd", CompressionMethod::kPowerSgd},
    {"qsgd", CompressionMethod::kQsgd}, {"randomk", CompressionMethod::kRandomK},
    {"sign", CompressionMethod::kSign}, {"terngrad", CompressionMethod::kTernGrad},
    {"topk", CompressionMethod::kTopK}};
inline const NamedChoices<CompressedValues> kCompressedValues{{"fp16", CompressedValues::kFp16},
                                                              {"full", CompressedValues::kFull}};
inline const NamedChoices<AveragingMethod> kAveragings{{"asynchronous", AveragingMethod::kAsynchronous},
                                                       {"central", AveragingMethod::kCentral},
                                                       {"diloco", AveragingMethod::kDiLoCo},
                                                       {"gossip", AveragingMethod::kGossip},
                                                       {"local-sgd", AveragingMethod::kLocalSgd},
                                                       {"none", AveragingMethod::kNone}};
inline const NamedChoices<StalenessPenalty> kStalenessPenalties{{"exponential", StalenessPenalty::kExponential},
                                                                {"inverse", StalenessPenalty::kInverse},
                                                                {"none", StalenessPenalty::kNone}};
inline const NamedChoices<GossipTopology> kGossipTopologies{{"exponential", GossipTopology::kExponential},
                                                            {"random", GossipTopology::kRandom},
                                                            {"ring", GossipTopology::kRing}};
inline const NamedChoices<ModelParallelism> kModelParallelisms{{"1f1b", ModelParallelism::k1F1B},
                                                               {"gpipe", ModelParallelism::kGpipe},
                                                               {"none", ModelParallelism::kNone},
                                                               {"tensor", ModelParallelism::kTensor}};

}  // namespace gloo_bypass::trainer
