// In what share ranks hold the model's state: the flags. Pure; no libtorch.
//
// No part of trajectoryOptions(): a checkpoint continues under any stage. Ranks compare the stage besides.
#pragma once

#include <cstdint>
#include <string>

namespace CLI {
class App;
}

namespace gloo_bypass::trainer {

struct Options;

struct ShardingOptions {
  int64_t zero = 0;  // stage; 0: every rank holds everything (DDP)
};

void addShardingOptions(CLI::App& app, ShardingOptions& options);

// What is wrong with them beside the other options; empty if nothing.
std::string crossCheck(const ShardingOptions& sharding, const Options& options);

}  // namespace gloo_bypass::trainer
