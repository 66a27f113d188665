#include "trainer/data/token_shards.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "tools/common/error.h"
#include "trainer/files/file_io.h"
#include "trainer/files/sha256.h"
#include "trainer/files/temporary_path.h"

namespace gloo_bypass::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "gloo-bypass tokens 1";
constexpr const char* kPartial = ".partial.";  // and six letters
constexpr int64_t kMost16Bits = 1 << 16;
constexpr int64_t kLargestBound = int64_t{1} << 31;

// "DIR/" is DIR, beside which there is to be another one.
std::string withoutSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') {
    path.pop_back();
  }
  return path;
}

// It may be somebody's folder after all: it is named, not removed.
void nameLeftovers(const std::string& folder) {
  const fs::path whole(folder);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(whole.has_parent_path() ? whole.parent_path() : ".", ignored)) {
    if (entry.path().filename().string().starts_with(whole.filename().string() + kPartial) &&
        !isInUse(entry.path().string())) {
      complain("tokenise",
               fmt::format("{} is there: remove it, if a run that was killed has left it", entry.path().string()));
    }
  }
}

std::string shardName(int64_t number) { return fmt::format("shard-{:05}.safetensors", number); }

std::string metadataOf(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    throw UsageError(fmt::format("{}: no shard of tokens: its metadata lack {:?}", file.path(), key));
  }
  return found->second;
}

int64_t numberIn(const SafetensorsFile& file, const std::string& key, int64_t low, int64_t high) {
  const std::string text = metadataOf(file, key);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    const std::string wanted = low == high ? std::to_string(low) : fmt::format("a number from {} to {}", low, high);
    throw UsageError(fmt::format("{}: {:?} is {:?}, not {}", file.path(), key, text, wanted));
  }
  return value;
}

const StoredTensor& tokensOf(const SafetensorsFile& file) {
  const auto found = file.tensors().find("tokens");
  if (found == file.tensors().end() || found->second.shape.size() != 1 ||
      (found->second.dtype != "U16" && found->second.dtype != "U32") || found->second.shape[0] < 1) {
    throw UsageError(fmt::format("{}: no shard of tokens: it has no tensor \"tokens\" (n) of U16 or U32", file.path()));
  }
  return found->second;
}

template <typename Stored>
void readWidened(const SafetensorsFile& file, const StoredTensor& tokens, int64_t begin, std::span<int32_t> out) {
  std::vector<Stored> stored(out.size());
  file.read(tokens, static_cast<uint64_t>(begin) * sizeof(Stored), std::as_writable_bytes(std::span(stored)));
  std::transform(stored.begin(), stored.end(), out.begin(), [](Stored id) {
    return id > static_cast<uint32_t>(std::numeric_limits<int32_t>::max()) ? -1 : static_cast<int32_t>(id);
  });
}

}  // namespace

TokenShards::TokenShards(const std::string& folder) {
  int64_t count = 0;
  for (std::error_code error; fs::exists(folder + "/" + shardName(count), error); ++count) {
  }
  if (count == 0) {
    throw UsageError(fmt::format("{}: a folder without {}: give a text, or a folder that scripts/tokenise wrote",
                                 folder, shardName(0)));
  }
  for (int64_t number = 0; number < count; ++number) {
    addShard(folder + "/" + shardName(number), number, number + 1 == count);
  }
}

void TokenShards::addShard(const std::string& path, int64_t number, bool isLast) {
  const auto& file = *files_.emplace_back(std::make_unique<SafetensorsFile>(path));
  if (metadataOf(file, "format") != kFormat) {
    throw UsageError(fmt::format("{}: its format is {:?}, not {:?}", path, metadataOf(file, "format"), kFormat));
  }
  numberIn(file, "shard", number, number);
  const int64_t idBound = numberIn(file, "id_bound", 1, kLargestBound);
  if (number == 0) {
    idBound_ = idBound;
    vocabulary_ = metadataOf(file, "vocabulary");
  } else if (idBound != idBound_ || metadataOf(file, "vocabulary") != vocabulary_) {
    throw UsageError(fmt::format("{} is of another vocabulary than {}", path, shardName(0)));
  }
  if ((metadataOf(file, "last") == "true") != isLast) {
    throw UsageError(isLast ? fmt::format("{} is not the last shard, but {} is not there", path, shardName(number + 1))
                            : fmt::format("{} is the last shard, but {} is there", path, shardName(number + 1)));
  }
  ends_.push_back((ends_.empty() ? 0 : ends_.back()) + tokensOf(file).shape[0]);
}

void TokenShards::read(int64_t begin, std::span<int32_t> out) const {
  auto shard = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
  for (int64_t at = begin; !out.empty(); ++shard) {
    const auto& file = *files_.at(shard);
    const auto& tokens = tokensOf(file);
    const int64_t first = shard == 0 ? 0 : ends_[shard - 1];
    const auto part = out.first(std::min(out.size(), static_cast<size_t>(ends_[shard] - at)));
    tokens.dtype == "U16" ? readWidened<uint16_t>(file, tokens, at - first, part)
                          : readWidened<uint32_t>(file, tokens, at - first, part);
    for (size_t i = 0; i < part.size(); ++i) {
      if (part[i] < 0 || part[i] >= idBound_) {
        throw UsageError(fmt::format("{}: token {} is no id below {}: the file is damaged", file.path(),
                                     at - first + static_cast<int64_t>(i), idBound_));
      }
    }
    at += static_cast<int64_t>(part.size());
    out = out.subspan(part.size());
  }
}

TokenShardWriter::TokenShardWriter(std::string folder, std::string vocabulary, int64_t idBound, int64_t shardTokens)
    : folder_(withoutSlashes(std::move(folder))),
      vocabulary_(std::move(vocabulary)),
      idBound_(idBound),
      shardTokens_(shardTokens) {
  if (fs::exists(folder_)) {
    throw UsageError(folder_ + " exists already: choose another --output, or move it away");
  }
  nameLeftovers(folder_);
  std::string name = folder_ + kPartial + "XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) {
    throw UsageError(fmt::format("cannot make {}: {}", folder_, std::strerror(errno)));
  }
  partial_.emplace(name);
  inUse_ = FileDescriptor(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  markInUse(inUse_);
}

void TokenShardWriter::add(std::span<const int32_t> tokens) {
  waiting_.insert(waiting_.end(), tokens.begin(), tokens.end());
  const auto whole = static_cast<size_t>(shardTokens_);
  size_t written = 0;
  for (; waiting_.size() - written > whole; written += whole) {  // what is left is the last one, perhaps
    writeShard(std::span(waiting_).subspan(written, whole), /*isLast=*/false);
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(written));
}

void TokenShardWriter::finish() {
  if (waiting_.empty()) {
    throw UsageError("the text is empty: there is nothing to write");
  }
  writeShard(waiting_, /*isLast=*/true);
  fs::permissions(partial_->path(), fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec |
                                        fs::perms::others_read | fs::perms::others_exec);
  if (!partial_->renameTo(folder_)) {
    throw ProgramError(fmt::format("cannot rename {} to {}: {}", partial_->path(), folder_, std::strerror(errno)));
  }
}

void TokenShardWriter::writeShard(std::span<const int32_t> tokens, bool isLast) {
  std::vector<uint16_t> narrow;
  TensorView view{.dtype = "U32", .shape = {static_cast<int64_t>(tokens.size())}, .bytes = std::as_bytes(tokens)};
  if (idBound_ <= kMost16Bits) {
    narrow.assign(tokens.begin(), tokens.end());
    view.dtype = "U16";
    view.bytes = std::as_bytes(std::span(narrow));
  }
  writeSafetensors(partial_->path() + "/" + shardName(shards_), std::map<std::string, TensorView>{{"tokens", view}},
                   {{"format", kFormat},
                    {"shard", std::to_string(shards_)},
                    {"last", isLast ? "true" : "false"},
                    {"id_bound", std::to_string(idBound_)},
                    {"vocabulary", vocabulary_}});
  ++shards_;
}

std::string vocabularyName(const std::string& vocabPath, const std::string& mergesPath) {
  if (vocabPath.empty()) {
    return "bytes";
  }
  constexpr size_t kMostBytes = 1 << 28;
  const std::string vocab = readFile(vocabPath, kMostBytes),
                    all = fmt::format("{} {}{}", vocab.size(), vocab, readFile(mergesPath, kMostBytes));
  Sha256 digest;
  digest.add(std::as_bytes(std::span(all)));
  return "sha256:" + digest.hex();
}

std::string_view tokenisablePiece(std::string_view text, size_t wanted) {
  const auto isPrinted = [&](size_t at) { return text[at] > ' ' && text[at] <= '~'; };
  const auto isCut = [&](size_t at) { return text[at] == ' ' && isPrinted(at - 1) && isPrinted(at + 1); };
  if (text.size() <= wanted || text.size() < 3) {
    return text;
  }
  size_t at = std::clamp(wanted, size_t{1}, text.size() - 2);
  for (; at > 0 && !isCut(at); --at) {
  }
  for (at = at == 0 ? wanted + 1 : at; at + 1 < text.size() && !isCut(at); ++at) {
  }
  return at + 1 < text.size() ? text.substr(0, at) : text;
}

TextPieces tokenisablePieces(const std::string& path, const Tokenizer& tokenizer, size_t pieceBytes) {
  const auto cut = [isBytePair = tokenizer.isBytePair()](std::string_view text) {
    if (!isBytePair) {
      return text.size();
    }
    const size_t bytes = tokenisablePiece(text, text.size() - 1).size();
    return bytes < text.size() ? bytes : 0;
  };
  return TextPieces(path, cut, pieceBytes);
}

}  // namespace gloo_bypass::trainer
