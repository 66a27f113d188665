// Text that has been tokenised already: a folder of safetensors files, so that a run neither tokenises nor holds the
// text.
//
// shard-00000.safetensors and so on hold one tensor each, "tokens" (n), U16 where every id fits, else U32: one text,
// cut anywhere. Their metadata say which shard it is, whether it is the last, how large ids may be, and which
// vocabulary they are of. No torch. One thread writes; any thread may read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/tokenizer.h"
#include "trainer/files/file_io.h"
#include "trainer/files/safetensors.h"
#include "trainer/files/temporary_path.h"

namespace gloo_bypass::trainer {

class TokenShards {
 public:
  // Throws UsageError for a folder with a shard that is missing, damaged or of another vocabulary than the others.
  explicit TokenShards(const std::string& folder);

  int64_t size() const { return ends_.back(); }                  // tokens
  const std::vector<int64_t>& ends() const { return ends_; }     // of each shard in the text
  int64_t idBound() const { return idBound_; }                   // ids are below
  const std::string& vocabulary() const { return vocabulary_; }  // as vocabularyName() has it
  // Fills `out` from token `begin` on; all must be there. Throws UsageError for an id that is not below idBound(),
  // LastingError where a file has become shorter.
  void read(int64_t begin, std::span<int32_t> out) const;

 private:
  void addShard(const std::string& path, int64_t number, bool isLast);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<int64_t> ends_;
  int64_t idBound_ = 0;
  std::string vocabulary_;
};

// Writes such a folder, whole or not at all.
class TokenShardWriter {
 public:
  // Throws UsageError where the folder is there, or cannot be made. Shards have `shardTokens`, the last one perhaps
  // less.
  TokenShardWriter(std::string folder, std::string vocabulary, int64_t idBound, int64_t shardTokens);

  void add(std::span<const int32_t> tokens);
  // Throws UsageError where there was no token.
  void finish();
  int64_t shards() const { return shards_; }

 private:
  void writeShard(std::span<const int32_t> tokens, bool isLast);

  const std::string folder_, vocabulary_;
  const int64_t idBound_, shardTokens_;
  std::optional<TemporaryPath> partial_;  // where it is written first
  FileDescriptor inUse_;
  std::vector<int32_t> waiting_;
  int64_t shards_ = 0;
};

// "bytes" without files, else a digest of both: texts of the same name have the same ids.
std::string vocabularyName(const std::string& vocabPath, const std::string& mergesPath);

// The first bytes of `text`, about `wanted`, so that its tokens and those of the rest are the text's: cut before a
// single space between printable ASCII characters, which GPT-2's pattern never looks across. All of the text where
// there is none.
std::string_view tokenisablePiece(std::string_view text, size_t wanted);

// A text file in such pieces.
TextPieces tokenisablePieces(const std::string& path, const Tokenizer& tokenizer,
                             size_t pieceBytes = TextPieces::kUsualBytes);

}  // namespace gloo_bypass::trainer
