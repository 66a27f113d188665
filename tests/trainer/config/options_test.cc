#include "trainer/config/options.h"

#include <algorithm>
#include <regex>
#include <set>

#include <gtest/gtest.h>

#include "tools/common/error.h"

namespace gloo_bypass::trainer {
namespace {

std::string refusal(const std::vector<std::string>& flags) {
  std::vector<const char*> words{"ddp_train"};
  for (const auto& flag : flags) words.push_back(flag.c_str());
  try {
    parseOptions(static_cast<int>(words.size()), words.data());
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

// Every option in a text must be among the given ones, except those in `remedies`.
void expectOnlyGiven(const std::vector<std::string>& flags, const std::set<std::string>& remedies = {}) {
  const std::string said = refusal(flags);
  ASSERT_NE(said, "accepted");
  const std::regex option("--[a-z][a-z0-9-]*[a-z0-9]");
  int named = 0;
  for (std::sregex_iterator at(said.begin(), said.end(), option), end; at != end; ++at) {
    if (remedies.count(at->str()) > 0) continue;
    ++named;
    EXPECT_NE(std::find(flags.begin(), flags.end(), at->str()), flags.end()) << at->str() << " was not given: " << said;
  }
  EXPECT_GT(named, 0) << said;
}

TEST(OptionMessages, OptionsThatExcludeEachOther_AreThoseThatWereGiven) {
  using Flags = std::vector<std::string>;
  const Flags checkpoint{"--checkpoint", "c"};
  expectOnlyGiven({"--average", "asynchronous", "--target-loss", "3"});
  expectOnlyGiven({"--average", "asynchronous", "--barrier"});
  expectOnlyGiven({"--collectives", "own", "--no-ddp"});
  expectOnlyGiven({"--collectives", "own", "--segment-bytes", "4096"});
  expectOnlyGiven({"--no-barrier", "--target-loss", "3"});
  expectOnlyGiven({"--average", "gossip", "--compress", "topk"});
  expectOnlyGiven({"--average", "gossip", "--precision", "bf16"});
  expectOnlyGiven({"--compress", "bf16", "--precision", "bf16"});
  expectOnlyGiven({"--layer-drop", "0.1"}, {"--find-unused-parameters"});
  for (const char* option : {"--find-unused-parameters", "--static-graph"}) {
    expectOnlyGiven({option, "--no-ddp"});
    expectOnlyGiven({option, "--zero", "1"});
    expectOnlyGiven({option, "--average", "gossip"});
    expectOnlyGiven({option, "--model-parallel", "tensor"});
  }
  expectOnlyGiven({"--activation-checkpointing", "--selective-checkpointing"});
  expectOnlyGiven({"--accumulate-fp32", "--accumulate", "2"}, {"--precision"});
  expectOnlyGiven({"--accumulate-fp32", "--precision", "bf16"}, {"--accumulate"});
  expectOnlyGiven({"--elastic", "1:2", "--checkpoint", "c", "--average", "gossip"});
  expectOnlyGiven({"--elastic", "1:2", "--checkpoint", "c", "--compress", "sign"});
  expectOnlyGiven({"--elastic", "1:2"}, {"--checkpoint", "--checkpoint-every"});
  expectOnlyGiven({"--stream-shards"}, {"--samples"});
  for (const Flags& other :
       {Flags{"--eval-samples", "3"}, Flags{"--tail", "pad"}, Flags{"--elastic", "1:2", "--checkpoint", "c"}}) {
    Flags flags{"--stream-shards", "--samples", "0"};
    flags.insert(flags.end(), other.begin(), other.end());
    expectOnlyGiven(flags, {"--eval-data"});
  }
  for (const Flags& other :
       {Flags{"--zero", "1"}, Flags{"--average", "gossip"}, Flags{"--compress", "topk"},
        Flags{"--gradient-as-bucket-view"}, Flags{"--step-markers", "127.0.0.1"}, Flags{"--dropout", "0.1"},
        Flags{"--precision", "bf16"}, Flags{"--no-ddp"}, Flags{"--elastic", "1:2", "--checkpoint", "c"}}) {
    Flags flags{"--model-parallel", "tensor"};
    flags.insert(flags.end(), other.begin(), other.end());
    expectOnlyGiven(flags);
  }
  for (const Flags& other : {Flags{"--precision", "bf16", "--accumulate", "2", "--accumulate-fp32"},
                             Flags{"--compress", "topk"}, Flags{"--average", "gossip"},
                             Flags{"--gradient-as-bucket-view"}, Flags{"--segment-bytes", "4096"}, Flags{"--no-ddp"}}) {
    Flags flags{"--zero", "2"};
    flags.insert(flags.end(), other.begin(), other.end());
    expectOnlyGiven(flags);
  }
  for (const Flags& other :
       {Flags{"--compress-ratio", "0.1"}, Flags{"--compress-values", "fp16"}, Flags{"--compress-levels", "3"},
        Flags{"--compress-rank", "3"}, Flags{"--compress-warmup", "3"}, Flags{"--no-error-feedback"}}) {
    expectOnlyGiven(other, {"--compress"});
  }
  for (const char* option : {"--initial-loss-scale", "--loss-scale-interval"}) {
    expectOnlyGiven({option, "1024", "--precision", "bf16"}, {"--loss-scale"});
  }
  for (const Flags& other : {Flags{"--no-ddp"}, Flags{"--average", "gossip"}}) {
    Flags flags{"--gradient-as-bucket-view"};
    flags.insert(flags.end(), other.begin(), other.end());
    expectOnlyGiven(flags);
  }
  expectOnlyGiven({"--segment-bytes", "4096", "--no-ddp"});
  expectOnlyGiven({"--segment-bytes", "4096", "--compress", "topk"});
  for (const char* method : {"gossip", "central", "asynchronous"}) {
    expectOnlyGiven({"--segment-bytes", "4096", "--average", method});
  }
  for (const Flags& other : {Flags{"--no-ddp"}, Flags{"--average", "gossip"}, Flags{"--model-parallel", "tensor"}}) {
    for (const char* option : {"--bucket-cap-mb", "--first-bucket-mb"}) {
      Flags flags{option, "2"};
      flags.insert(flags.end(), other.begin(), other.end());
      expectOnlyGiven(flags);
    }
  }
  expectOnlyGiven({"--first-bucket-mb", "2", "--zero", "1"});
  expectOnlyGiven({"--max-restarts", "3"}, {"--elastic"});
  expectOnlyGiven({"--rejoin-after", "3"}, {"--elastic"});
  expectOnlyGiven({"--min-lr-ratio", "0.1"}, {"--schedule"});
  expectOnlyGiven({"--schedule-steps", "10"}, {"--schedule"});
}

// A trace says it, and what reads traces knows buckets that are all-reduced only.
TEST(Options, Exchange_SumsThatRanksGather_AreNoAllReduces) {
  Options options;
  EXPECT_EQ(options.exchange(), "all_reduce");
  for (const Sums sums : {Sums::kOrdered, Sums::kCompensated}) {
    options.sums = sums;
    EXPECT_EQ(options.exchange(), "--sums");
  }
}

}  // namespace
}  // namespace gloo_bypass::trainer
