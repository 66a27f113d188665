// How ranks meet where they do not reduce every gradient: --average and what belongs to it. No libtorch.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace CLI {
class App;
}

namespace gloo_bypass::trainer {

enum class AveragingMethod { kNone, kLocalSgd, kDiLoCo, kCentral, kAsynchronous, kGossip };
enum class StalenessPenalty { kNone, kInverse };
enum class GossipTopology { kRing, kExponential, kRandom };

struct AveragingOptions {
  AveragingMethod method = AveragingMethod::kNone;
  int64_t innerSteps = 10;                      // local-sgd, diloco: optimiser steps between two meetings
  double outerRate = 0.7, outerMomentum = 0.9;  // diloco
  int64_t stalenessBound = -1;  // asynchronous: steps that a rank may be ahead of the slowest; -1: any number
  StalenessPenalty stalenessPenalty = StalenessPenalty::kNone;
  GossipTopology topology = GossipTopology::kRing;

  bool isUsed() const { return method != AveragingMethod::kNone; }
  bool isAsynchronous() const { return method == AveragingMethod::kAsynchronous; }
  // Whether each rank writes a file of its own beside a checkpoint.
  bool keepsRankState() const { return isUsed() && !isAsynchronous() && method != AveragingMethod::kCentral; }
};

void addAveragingOptions(CLI::App& app, AveragingOptions& options);
// What is wrong with the options, one line; empty: nothing.
std::string crossCheck(const AveragingOptions& options, bool hasGroup);
// Adds nothing where nothing is averaged.
void addToTrajectory(const AveragingOptions& options, nlohmann::json& trajectory);

}  // namespace gloo_bypass::trainer
