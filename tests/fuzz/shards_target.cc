// Folders of tokenised text that someone else made: up to three shards, each a correct one with edits.
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/script.h"
#include "tools/common/error.h"
#include "trainer/data/token_shards.h"
#include "transport/base/check.h"

namespace gloo_bypass::fuzz {
namespace {

constexpr std::size_t kMostShards = 3, kTokens = 4, kMostEdits = 16;
constexpr std::size_t kMostRead = 4096;  // tokens, at a time

std::vector<std::uint8_t> correctShard(std::size_t number, bool isLast, bool wide) {
  std::string header =
      fmt::format(R"({{"__metadata__":{{"format":"gloo-bypass tokens 1","shard":"{}","last":"{}","id_bound":"{}",)"
                  R"("vocabulary":"bytes"}},"tokens":{{"dtype":"{}","shape":[{}],"data_offsets":[0,{}]}}}})",
                  number, isLast, wide ? 100'000 : 256, wide ? "U32" : "U16", kTokens, kTokens * (wide ? 4 : 2));
  std::vector<std::uint8_t> file(8);
  for (std::size_t i = 0; i < 2; ++i) file[i] = static_cast<std::uint8_t>(header.size() >> (8 * i));
  file.insert(file.end(), header.begin(), header.end());
  for (std::size_t i = 0; i < kTokens; ++i) {
    file.push_back(static_cast<std::uint8_t>(i));
    file.insert(file.end(), wide ? 3 : 1, 0);
  }
  return file;
}

// A folder whose shards are files in memory.
class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "fuzzed-shards-XXXXXX";
    GLOO_BYPASS_CHECK(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void hold(std::size_t shard, std::span<const std::uint8_t> bytes) {
    files_[shard].hold(bytes);
    link(shard, true);
  }
  void link(std::size_t shard, bool isThere) {
    const std::string name = fmt::format("{}/shard-{:05}.safetensors", path, shard);
    if (isThere == linked_[shard]) return;
    GLOO_BYPASS_CHECK((isThere ? ::symlink(files_[shard].path().c_str(), name.c_str()) : ::unlink(name.c_str())) == 0);
    linked_[shard] = isThere;
  }
  std::string path;

 private:
  std::array<MemoryFile, kMostShards> files_;
  std::array<bool, kMostShards> linked_{};
};

void readAll(const trainer::TokenShards& shards) {
  GLOO_BYPASS_CHECK(shards.size() > 0 && shards.idBound() > 0 && shards.size() == shards.ends().back());
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(std::min<std::int64_t>(shards.size(), kMostRead)));
  for (const std::int64_t begin : {std::int64_t{0}, shards.size() - static_cast<std::int64_t>(tokens.size())}) {
    shards.read(begin, tokens);
    for (const std::int32_t token : tokens) GLOO_BYPASS_CHECK(token >= 0 && token < shards.idBound());
  }
}

}  // namespace

void fuzzShards(std::span<const std::uint8_t> input) {
  static Folder folder;
  Script script(input);
  const std::uint8_t choice = script.byte();
  const std::size_t count = 1 + choice % kMostShards;
  for (std::size_t shard = 0; shard < kMostShards; ++shard) {
    if (shard >= count) {
      folder.link(shard, false);
      continue;
    }
    Script edits(script.take(shard + 1 < count ? script.byte() : input.size()));
    folder.hold(shard, edited(correctShard(shard, shard + 1 == count, (choice & 64) != 0), edits, kMostEdits));
  }
  try {
    readAll(trainer::TokenShards(folder.path));
  } catch (const ProgramError& error) {
    checkLine(error.what());
  }
}

}  // namespace gloo_bypass::fuzz
