#include "trainer/data/tokenizer.h"

#include <fmt/format.h>
#include <unicode/regex.h>
#include <unicode/utext.h>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/common/error.h"
#include "trainer/files/file_io.h"

namespace gloo_bypass::trainer {
namespace {

constexpr size_t kMaxVocabularyBytes = 64 << 20;  // GPT-2's is 1 MB; the bound only stops a wrong path early
constexpr size_t kMaxTokens = 1'000'000;          // GPT-2 has 50,257; each takes 100 bytes
constexpr size_t kMaxCachedPieces = 1 << 18;      // about 30 MB; when full, further pieces are merged anew

constexpr const char* kEndOfText = "<|endoftext|>";

// How GPT-2 cuts text into pieces before merging.
constexpr const char16_t* kPiecePattern =
    u"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\p{White_Space}\\p{L}\\p{N}]+"
    u"|\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+";

// GPT-2 writes each byte as a printable character: itself where printable, else 256 + a running number. The order
// in which bytes get their token ids is: the printable ones, then the others.
bool isPrintableByte(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

std::string utf8(int codePoint) {
  std::string out;
  if (codePoint < 0x80) {
    out.push_back(static_cast<char>(codePoint));
  } else {
    out.push_back(static_cast<char>(0xC0 | (codePoint >> 6)));
    out.push_back(static_cast<char>(0x80 | (codePoint & 0x3F)));
  }
  return out;
}

std::array<int32_t, 256> byteOrder() {
  std::array<int32_t, 256> ids{};
  int32_t next = 0;
  for (const bool printable : {true, false}) {
    for (int byte = 0; byte < 256; ++byte) {
      if (isPrintableByte(byte) == printable) {
        ids[static_cast<size_t>(byte)] = next++;
      }
    }
  }
  return ids;
}

uint64_t pairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// Takes each entry from the parser as it comes: all of them as JSON are many times the file.
std::unordered_map<std::string, int32_t> parseVocabulary(std::string_view text, const std::string& name) {
  using Event = nlohmann::json::parse_event_t;
  const std::string foreign = fmt::format("{}: not a JSON object of token to id, as GPT-2's vocab.json is", name);
  std::unordered_map<std::string, int32_t> ids;
  std::string token;
  const auto take = [&](int depth, Event event, const nlohmann::json& part) {
    if (depth == 0 && event != Event::array_start) {
      return true;
    }
    if (event == Event::key) {
      token = part.get<std::string>();
      return false;
    }
    if (event != Event::value) {
      throw UsageError(foreign);
    }
    if (!part.is_number_unsigned() || part.get<uint64_t>() > 10'000'000) {
      throw UsageError(fmt::format("{}: the id of token {:?} is not a small non-negative integer", name, token));
    }
    if (ids.size() == kMaxTokens) {
      throw UsageError(fmt::format("{}: more than {} tokens", name, kMaxTokens));
    }
    ids.emplace(std::move(token), part.get<int32_t>());
    return false;
  };
  if (!nlohmann::json::parse(text, take, /*allow_exceptions=*/false).is_object()) {
    throw UsageError(foreign);
  }
  return ids;
}

}  // namespace

Tokenizer Tokenizer::bytes() {
  Tokenizer tokenizer;
  tokenizer.byteIds_ = byteOrder();
  tokenizer.idBound_ = 256;
  tokenizer.endOfText_ = 256;
  return tokenizer;
}

Tokenizer Tokenizer::bytePairs(const std::string& vocabPath, const std::string& mergesPath) {
  return bytePairsFromText(readFile(vocabPath, kMaxVocabularyBytes), readFile(mergesPath, kMaxVocabularyBytes),
                           vocabPath, mergesPath);
}

Tokenizer Tokenizer::bytePairsFromText(std::string_view vocabJson, std::string_view merges,
                                       const std::string& vocabName, const std::string& mergesName) {
  const auto ids = parseVocabulary(vocabJson, vocabName);
  Tokenizer tokenizer;
  tokenizer.hasMerges_ = true;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(utf8(isPrintableByte(byte) ? byte : next++));
    if (found == ids.end()) {
      throw UsageError(fmt::format("{}: no token for byte {:#04x}; not a byte-level vocabulary", vocabName, byte));
    }
    tokenizer.byteIds_[static_cast<size_t>(byte)] = found->second;
  }
  for (const auto& [token, id] : ids) {
    tokenizer.idBound_ = std::max<int64_t>(tokenizer.idBound_, int64_t{id} + 1);
  }
  tokenizer.vocabularyName_ = vocabName;
  if (const auto found = ids.find(kEndOfText); found != ids.end()) {
    tokenizer.endOfText_ = found->second;
  }
  int32_t rank = 0;
  int lineNumber = 0;
  while (!merges.empty()) {
    const size_t end = merges.find('\n');
    std::string_view line = merges.substr(0, end);
    merges.remove_prefix(end == std::string_view::npos ? merges.size() : end + 1);
    ++lineNumber;
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (line.empty() || (lineNumber == 1 && line.starts_with("#version"))) {
      continue;
    }
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      throw UsageError(fmt::format("{}:{}: not two tokens separated by one space", mergesName, lineNumber));
    }
    const std::string left(line.substr(0, space)), right(line.substr(space + 1));
    const auto leftId = ids.find(left), rightId = ids.find(right), mergedId = ids.find(left + right);
    if (leftId == ids.end() || rightId == ids.end() || mergedId == ids.end()) {
      throw UsageError(fmt::format("{}:{}: a token of this merge is not in {}", mergesName, lineNumber, vocabName));
    }
    tokenizer.merges_.try_emplace(pairKey(leftId->second, rightId->second), Merge{rank++, mergedId->second});
  }
  return tokenizer;
}

int32_t Tokenizer::endOfText() const {
  if (endOfText_ < 0) {
    throw UsageError(fmt::format("{}: no token {:?}, which stands between passages", vocabularyName_, kEndOfText));
  }
  return endOfText_;
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, size_t limit) {
  std::vector<int32_t> ids;
  if (!hasMerges_) {
    text = text.substr(0, limit);
    ids.reserve(text.size());
    for (const char c : text) {
      ids.push_back(byteIds_[static_cast<unsigned char>(c)]);
    }
    return ids;
  }
  UErrorCode status = U_ZERO_ERROR;
  icu::RegexMatcher matcher(icu::UnicodeString(kPiecePattern), 0, status);
  // A UText over UTF-8 keeps byte offsets, so pieces are cut from the original bytes, ill-formed ones included.
  UText* utext = utext_openUTF8(nullptr, text.data(), static_cast<int64_t>(text.size()), &status);
  matcher.reset(utext);
  int64_t done = 0;
  while (U_SUCCESS(status) && ids.size() < limit && matcher.find(status) && U_SUCCESS(status)) {
    const int64_t end = matcher.end64(status);
    appendPiece(text.substr(static_cast<size_t>(done), static_cast<size_t>(end - done)), ids);
    done = end;
  }
  utext_close(utext);
  if (U_FAILURE(status)) {
    throw ProgramError(fmt::format("cutting the text into words failed in ICU: {}", u_errorName(status)));
  }
  ids.resize(std::min(ids.size(), limit));
  return ids;
}

void Tokenizer::appendPiece(std::string_view piece, std::vector<int32_t>& ids) {
  std::string key(piece);
  const auto cached = cache_.find(key);
  if (cached != cache_.end()) {
    ids.insert(ids.end(), cached->second.begin(), cached->second.end());
    return;
  }
  auto merged = mergePiece(piece);
  ids.insert(ids.end(), merged.begin(), merged.end());
  if (cache_.size() < kMaxCachedPieces) {
    cache_.emplace(std::move(key), std::move(merged));
  }
}

std::vector<int32_t> Tokenizer::mergePiece(std::string_view piece) const {
  std::vector<int32_t> symbols;
  for (const char c : piece) {
    symbols.push_back(byteIds_[static_cast<unsigned char>(c)]);
  }
  while (symbols.size() > 1) {
    const Merge* best = nullptr;
    uint64_t bestKey = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = merges_.find(pairKey(symbols[i], symbols[i + 1]));
      if (found != merges_.end() && (best == nullptr || found->second.rank < best->rank)) {
        best = &found->second;
        bestKey = found->first;
      }
    }
    if (best == nullptr) {
      break;
    }
    // Merge every occurrence of the best pair, left to right, in place.
    size_t out = 0;
    for (size_t i = 0; i < symbols.size(); ++i) {
      const bool match = i + 1 < symbols.size() && pairKey(symbols[i], symbols[i + 1]) == bestKey;
      symbols[out++] = match ? best->id : symbols[i];
      i += match ? 1 : 0;
    }
    symbols.resize(out);
  }
  return symbols;
}

}  // namespace gloo_bypass::trainer
