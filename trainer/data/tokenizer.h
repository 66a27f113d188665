// Text to GPT-2 token ids.
//
// Without files, a byte is a token: the id GPT-2 gives that byte (its first 256 ids), so a pretrained model
// still understands the text. With vocab.json and merges.txt, the whole byte-level byte-pair encoding of GPT-2;
// special tokens in the text are treated as ordinary text. Any byte sequence can be encoded, UTF-8 or not.
// Thread-compatible: encode() fills a cache, so share an object between threads only under a lock.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace gloo_bypass::trainer {

class Tokenizer {
 public:
  // One token a byte.
  static Tokenizer bytes();
  // Throws ProgramError naming the file, and the line of merges.txt, for anything that is not GPT-2's format.
  static Tokenizer bytePairs(const std::string& vocabPath, const std::string& mergesPath);
  // The same from the files' contents; `vocabName` and `mergesName` appear in errors.
  static Tokenizer bytePairsFromText(std::string_view vocabJson, std::string_view merges, const std::string& vocabName,
                                     const std::string& mergesName);

  // Encodes until the text ends or at least `limit` tokens are there; returns at most `limit`.
  std::vector<int32_t> encode(std::string_view text, size_t limit = std::numeric_limits<size_t>::max());

  // What stands between texts that were not written together: "<|endoftext|>" of the vocabulary; without one 256, which
  // is no byte's. Throws UsageError where the vocabulary lacks it.
  int32_t endOfText() const;
  // One more than the largest id that encode() can return.
  int64_t idBound() const { return idBound_; }
  bool isBytePair() const { return hasMerges_; }

 private:
  struct Merge {
    int32_t rank;
    int32_t id;
  };
  Tokenizer() = default;
  void appendPiece(std::string_view piece, std::vector<int32_t>& ids);
  std::vector<int32_t> mergePiece(std::string_view piece) const;

  std::array<int32_t, 256> byteIds_{};
  std::unordered_map<uint64_t, Merge> merges_;  // key: left id << 32 | right id
  std::unordered_map<std::string, std::vector<int32_t>> cache_;
  int64_t idBound_ = 0;
  int32_t endOfText_ = -1;  // < 0: none
  std::string vocabularyName_;
  bool hasMerges_ = false;
};

}  // namespace gloo_bypass::trainer
