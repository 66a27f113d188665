// tokenise: texts into a folder of shards that ddp_train --data takes. See README.md in this folder.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tools/common/command_line.h"
#include "tools/common/error.h"
#include "tools/common/run_program.h"
#include "tools/common/version.h"
#include "trainer/config/choices.h"
#include "trainer/data/passages.h"
#include "trainer/data/token_shards.h"
#include "trainer/data/tokenizer.h"
#include "trainer/files/file_io.h"
#include "trainer/files/temporary_path.h"

namespace gloo_bypass::trainer {
namespace {

struct TokeniseOptions {
  std::vector<std::string> texts;
  std::string output, vocab, merges;
  Passages passages = Passages::kNone;
  int64_t shardTokens = 100'000'000;  // 200 MB
};

std::variant<TokeniseOptions, std::string> parse(int argc, const char* const* argv) {
  TokeniseOptions options;
  CLI::App app("Tokenises texts, one after the other, into a folder of shards that ddp_train --data reads.",
               "tokenise");
  app.option_defaults()->always_capture_default();
  app.set_version_flag("--version", std::string("tokenise ") + commitName());
  app.add_option("texts", options.texts, "files")->required()->type_name("TEXT");
  app.add_option("--output", options.output, "a new folder")->required()->type_name("DIR");
  auto* vocab =
      app.add_option("--vocab", options.vocab, "GPT-2's vocab.json (without: one token a byte)")->type_name("FILE");
  vocab->needs(app.add_option("--merges", options.merges, "GPT-2's merges.txt")->type_name("FILE")->needs(vocab));
  app.add_option_function<std::string>(
         "--passages", [&options](const std::string& text) { options.passages = valueOf(kPassages, text); },
         "lines, or paragraphs between blank lines, with the end-of-text token after each (as of ddp_train --passages "
         "... --pack); none: the "
         "texts as they are")
      ->check(CLI::IsMember(namesOf(kPassages)))
      ->default_str("none");
  app.add_option("--shard-tokens", options.shardTokens, "tokens a file")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  if (auto text = readCommandLine(app, argc, argv)) {
    return *std::move(text);
  }
  return options;
}

int run(const TokeniseOptions& options) {
  removeTemporariesOnSignals();
  auto tokenizer = options.vocab.empty() ? Tokenizer::bytes() : Tokenizer::bytePairs(options.vocab, options.merges);
  const bool isPacked = options.passages != Passages::kNone;
  const int64_t idBound =
      isPacked ? std::max<int64_t>(tokenizer.idBound(), tokenizer.endOfText() + 1) : tokenizer.idBound();
  TokenShardWriter writer(options.output, vocabularyName(options.vocab, options.merges), idBound, options.shardTokens);
  size_t tokens = 0;
  const auto add = [&](std::span<const int32_t> ids) {
    writer.add(ids);
    tokens += ids.size();
    return true;
  };
  for (const auto& path : options.texts) {
    if (isPacked) {
      pack(path, options.passages, tokenizer, add);
      continue;
    }
    TextPieces pieces = tokenisablePieces(path, tokenizer);
    for (auto piece = pieces.next(); !piece.empty(); piece = pieces.next()) {
      add(tokenizer.encode(piece));
    }
  }
  writer.finish();
  fmt::print("{} tokens in {} shard{}: {}\n", tokens, writer.shards(), writer.shards() == 1 ? "" : "s", options.output);
  return 0;
}

}  // namespace
}  // namespace gloo_bypass::trainer

int main(int argc, char** argv) {
  namespace trainer = gloo_bypass::trainer;
  return gloo_bypass::runProgram("tokenise", trainer::parse, trainer::run, argc, argv);
}
