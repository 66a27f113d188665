// Tokenised text: reading returns what was written, and damaged files are refused.
#include <sys/resource.h>

#include <array>
#include <filesystem>
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/tiny_training.h"
#include "tests/trainer/training_results.h"
#include "tools/common/error.h"
#include "trainer/data/token_shards.h"

namespace gloo_bypass::trainer::testing {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kIdBound = 1000;

std::vector<int32_t> someTokens(size_t count, int32_t bound = kIdBound) {
  std::mt19937 random(7);
  std::vector<int32_t> tokens(count);
  for (auto& id : tokens) id = static_cast<int32_t>(random() % static_cast<uint32_t>(bound));
  return tokens;
}

void writeShards(const std::string& folder, const std::vector<int32_t>& tokens, int64_t shardTokens,
                 int64_t idBound = kIdBound, const std::string& vocabulary = "bytes") {
  TokenShardWriter writer(folder, vocabulary, idBound, shardTokens);
  constexpr size_t kAtATime = 7;
  for (size_t i = 0; i < tokens.size(); i += kAtATime) {
    writer.add(std::span(tokens).subspan(i, std::min(kAtATime, tokens.size() - i)));
  }
  writer.finish();
}

TEST(TokenShards, AnyPartOfTheText_IsWhatWasWritten) {
  for (const auto& [count, shardTokens, idBound] : std::vector<std::array<int64_t, 3>>{
           {100, 30, kIdBound}, {90, 30, kIdBound}, {1, 30, kIdBound}, {100, 1, kIdBound}, {100, 1000, 70'000}}) {
    const TemporaryFolder folder;
    const auto tokens = someTokens(static_cast<size_t>(count), static_cast<int32_t>(idBound));
    writeShards(folder / "t", tokens, shardTokens, idBound);
    const TokenShards shards(folder / "t");
    ASSERT_EQ(shards.size(), count);
    EXPECT_EQ(shards.idBound(), idBound);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder / "t"), {}), (count + shardTokens - 1) / shardTokens);
    for (int64_t begin = 0; begin < count; begin += 11) {
      std::vector<int32_t> read(static_cast<size_t>(count - begin));
      shards.read(begin, read);
      EXPECT_TRUE(std::equal(read.begin(), read.end(), tokens.begin() + begin)) << begin;
    }
  }
}

TEST(TokenShards, MoreThanMayBeOpenUnasked_AreRead) {
  const TemporaryFolder folder;
  const auto tokens = someTokens(100);
  writeShards(folder / "t", tokens, 1);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{50, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<int32_t> read(tokens.size());
  TokenShards(folder / "t").read(0, read);
  EXPECT_EQ(read, tokens);
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

std::string refusalOf(const std::string& folder) {
  try {
    const TokenShards shards(folder);
    std::vector<int32_t> all(static_cast<size_t>(shards.size()));
    shards.read(0, all);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "read";
}

TEST(TokenShards, WhatIsMissingOrDamaged_IsNamed) {
  const auto tokens = someTokens(100);
  const auto after = [&](const std::function<void(const std::string&)>& damage) {
    const TemporaryFolder folder;
    writeShards(folder / "t", tokens, 30);
    damage(folder / "t");
    return refusalOf(folder / "t");
  };
  const std::string first = "/shard-00000.safetensors", second = "/shard-00001.safetensors",
                    last = "/shard-00003.safetensors";
  const auto with = [&](const std::string& metadata, const std::string& value, int32_t id = 1) {
    return [=](const std::string& folder) {
      std::map<std::string, std::string> all{{"format", "gloo-bypass tokens 1"},
                                             {"shard", "1"},
                                             {"last", "false"},
                                             {"id_bound", "1000"},
                                             {"vocabulary", "bytes"}};
      all[metadata] = value;
      const std::vector<int32_t> ids{id};
      writeSafetensors(folder + second,
                       std::map<std::string, TensorView>{{"tokens", {"U32", {1}, std::as_bytes(std::span(ids))}}}, all);
    };
  };
  EXPECT_EQ(after([](const std::string&) {}), "read");
  EXPECT_EQ(after(with("last", "false")), "read");
  for (const auto& [said, wanted] : std::vector<std::pair<std::string, std::string>>{
           {after([&](const std::string& folder) { fs::remove(folder + last); }),
            "is not the last shard, but shard-00003"},
           {after([&](const std::string& folder) { fs::remove(folder + second); }),
            "is not the last shard, but shard-00001"},
           {after([&](const std::string& folder) { fs::remove(folder + first); }), "a folder without shard-00000"},
           {after([&](const std::string& folder) {
              fs::resize_file(folder + second, fs::file_size(folder + second) - 1);
            }),
            "truncated"},
           {after([&](const std::string& folder) { fs::resize_file(folder + second, 5); }), "not a safetensors file"},
           {after([&](const std::string& folder) {
              fs::copy_file(folder + second, folder + "/shard-00004.safetensors");
            }),
            "shard-00003.safetensors is the last shard, but shard-00004"},
           {after(with("shard", "7")), "\"shard\" is \"7\", not 1"},
           {after(with("last", "true")), "is the last shard, but shard-00002"},
           {after(with("format", "x")), "its format is \"x\""},
           {after(with("vocabulary", "sha256:0")), "is of another vocabulary than shard-00000"},
           {after(with("id_bound", "999")), "is of another vocabulary"},
           {after(with("id_bound", "many")), "\"id_bound\" is \"many\", not a number"},
           {after(with("shard", "1", 1000)), "token 0 is no id below 1000"},
           {after(with("shard", "1", -1)), "token 0 is no id below 1000"}}) {
    EXPECT_NE(said.find(wanted), std::string::npos) << "wanted: " << wanted << "; said: " << said;
  }
}

TEST(TokenShardWriter, WhatIsNotFinished_LeavesNothing) {
  const TemporaryFolder folder;
  {
    TokenShardWriter writer(folder / "t", "bytes", kIdBound, 3);
    writer.add(someTokens(10));
  }
  EXPECT_TRUE(fs::is_empty(std::string(folder / ".")));
  EXPECT_THROW(TokenShardWriter(folder / "t", "bytes", kIdBound, 3).finish(), UsageError);
  EXPECT_TRUE(fs::is_empty(std::string(folder / ".")));
  EXPECT_THROW(TokenShardWriter(folder / "nowhere/t", "bytes", kIdBound, 3), UsageError);
  fs::create_directory(folder / "t");
  EXPECT_THROW(TokenShardWriter(folder / "t", "bytes", kIdBound, 3), UsageError);
}

ProgramResult tokenise(std::vector<std::string> flags) {
  return Program(std::getenv("TOKENISE"), flags, {}).finish(kLimit);
}

TEST(Tokenise, RunOfShards_HasTheBitsOfTheText) {
  const TemporaryFolder folder;
  const std::string text = std::getenv("SAMPLE_TEXT");
  const auto made = tokenise({text, "--output", (folder / "t") + "/", "--shard-tokens", "999"});
  ASSERT_EQ(made.shellStatus(), 0) << made.err;
  EXPECT_NE(made.out.find(std::to_string(fs::file_size(text)) + " tokens in "), std::string::npos) << made.out;
  const std::vector<std::string> flags{"--steps", "5", "--samples", "60", "--eval-samples", "7", "--data"};
  const auto digest = [&](const std::string& data) {
    auto all = flags;
    all.push_back(data);
    return digestOf(train(all));
  };
  EXPECT_EQ(digest(folder / "t"), digest(text));
  expectRefused(tokenise({text, "--output", folder / "t"}), "exists already: choose another --output");
  expectRefused(tokenise({text, "--output", folder / "u", "--vocab", text}), "--vocab requires --merges");
  expectRefused(tokenise({folder / "missing", "--output", folder / "u"}), "missing");
  EXPECT_FALSE(fs::exists(folder / "u"));
  expectRefused(train({"--steps", "1", "--data", folder / "t", "--passages", "lines"}), "--passages");
  fs::resize_file(folder / "t/shard-00002.safetensors", 400);
  expectRefused(train({"--spawn", "2", "--steps", "1", "--data", folder / "t"}), "shard-00002.safetensors");
  expectRefused(train({"--steps", "1", "--data", folder / "."}), "a folder without shard-00000.safetensors");
}

// With a mapping it was SIGBUS, or tokens of 0 if the end lies in the last page.
TEST(TokenShards, ShardThatBecomesShorterWhileRanksReadIt_EndsThemWithItsName) {
  const std::string text = std::getenv("SAMPLE_TEXT");
  for (const size_t left : {size_t{0}, size_t{400}}) {
    const TemporaryFolder folder;
    ASSERT_EQ(tokenise({text, "--output", folder / "t", "--shard-tokens", "1000"}).shellStatus(), 0);
    auto training = startTraining(
        {"--spawn", "2", "--epochs", "100000", "--samples", "0", "--data", folder / "t", "--metrics", "-"});
    ASSERT_TRUE(training.waitForOutput("\"event\":\"step\"", kLimit));
    const std::string shard = folder / "t/shard-00002.safetensors";
    fs::resize_file(shard, left);
    const auto finished = training.finish(kLimit);
    EXPECT_EQ(finished.shellStatus(), 1) << finished.err;
    EXPECT_NE(finished.err.find("cannot read " + shard + ": it has become shorter since it was opened"),
              std::string::npos)
        << finished.err;
  }
}

TEST(TokenShards, EvaluatedTextOfAnotherVocabulary_IsRefused) {
  const TemporaryFolder folder;
  writeShards(folder / "t", someTokens(400, 256), 100, 256, "sha256:0");
  expectRefused(train({"--steps", "1", "--eval-data", folder / "t"}), "of another vocabulary than the training text");
  digestOf(train({"--steps", "1", "--samples", "10", "--data", folder / "t", "--eval-data", folder / "t"}));
}

TEST(Tokenise, PackedPassages_HaveTheBitsOfThoseInMemory) {
  const TemporaryFolder folder;
  const std::string text = std::getenv("SAMPLE_TEXT");
  for (const std::string kind : {"lines", "paragraphs"}) {
    ASSERT_EQ(tokenise({text, "--output", folder / kind, "--passages", kind, "--shard-tokens", "10000"}).shellStatus(),
              0);
    EXPECT_EQ(digestOf(train({"--steps", "3", "--data", folder / kind})),
              digestOf(train({"--steps", "3", "--passages", kind, "--pack"})));
  }
  expectRefused(tokenise({text, "--output", folder / "u", "--passages", "words"}), "words");
  expectRefused(train({"--steps", "1", "--pack"}), "--pack");
}

// Rank by rank the shards' samples in their order: see also passages_reference.py.
TEST(StreamShards, ContinuedRun_HasTheBitsOfAStraightOne_AndUnfitInputIsRefused) {
  const TemporaryFolder folder;
  const std::string text = std::getenv("SAMPLE_TEXT"), shards = folder / "t", checkpoint = folder / "c";
  ASSERT_EQ(tokenise({text, "--output", shards, "--shard-tokens", "9000"}).shellStatus(), 0);
  const std::vector<std::string> flags{"--spawn", "2", "--data", shards, "--stream-shards", "--samples", "0"};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return train(more);
  };
  const auto straight = digestOf(run({"--steps", "6"}));
  EXPECT_NE(digestOf(train({"--spawn", "2", "--data", shards, "--samples", "0", "--steps", "6"})), straight);
  digestOf(run({"--steps", "3", "--checkpoint", checkpoint}));
  EXPECT_EQ(digestOf(run({"--steps", "6", "--resume", checkpoint})), straight);
  digestOf(run({"--steps", "1", "--eval-data", shards}));
  const auto unlike =
      train({"--spawn", "2", "--data", shards, "--samples", "0", "--steps", "6", "--resume", checkpoint});
  EXPECT_TRUE(unlike.shellStatus() == 2 && unlike.err.find("other options") != std::string::npos) << unlike.err;
  expectRefused(run({"--steps", "1", "--eval-samples", "3"}), "--eval-samples");
  expectRefused(run({"--steps", "1", "--tail", "pad"}), "--tail");
  expectRefused(train({"--spawn", "2", "--data", shards, "--stream-shards", "--steps", "1"}), "--samples 0");
  expectRefused(train({"--spawn", "2", "--data", text, "--stream-shards", "--steps", "1", "--samples", "0"}),
                "is no folder of shards");
  expectRefused(train({"--spawn", "60", "--data", shards, "--stream-shards", "--steps", "1", "--samples", "0"}),
                "fewer than 60 ranks");
}

}  // namespace
}  // namespace gloo_bypass::trainer::testing
