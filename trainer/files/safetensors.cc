#include "trainer/files/safetensors.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/common/error.h"
#include "trainer/files/finite.h"
#include "trainer/files/json_input.h"
#include "transport/base/check.h"

namespace gloo_bypass::trainer {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 32 << 20;  // of 100,000 tensors; gpt2-xl's checkpoint has 200 KB
constexpr size_t kMaxMetadata = 1024;           // entries
constexpr size_t kMaxElementsOfAnArray = 8;     // a shape's
constexpr const char* kMetadata = "__metadata__";
constexpr size_t kHeaderAlignment = 8;
constexpr uint64_t kMaxElements = uint64_t{1} << 48;

uint64_t readLength(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    value |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  }
  return value;
}

struct Dtype {
  std::string_view name;
  size_t bytes;
};
constexpr std::array<Dtype, 13> kDtypes{{{"F64", 8},
                                         {"F32", 4},
                                         {"F16", 2},
                                         {"BF16", 2},
                                         {"I64", 8},
                                         {"I32", 4},
                                         {"I16", 2},
                                         {"I8", 1},
                                         {"U8", 1},
                                         {"BOOL", 1},
                                         {"U16", 2},
                                         {"U32", 4},
                                         {"U64", 8}}};

const Dtype* findDtype(std::string_view name) {
  const auto* const found =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& dtype) { return dtype.name == name; });
  return found == kDtypes.end() ? nullptr : found;
}

uint64_t unsignedOr(const nlohmann::json& value, const std::string& what) {
  if (!value.is_number_unsigned()) {
    throw UsageError(what + " is not a non-negative integer");
  }
  return value.get<uint64_t>();
}

// Parses one header entry; `where` names file and tensor in errors. The tensor's place is in the `dataBytes` bytes of
// data.
StoredTensor parseTensor(const nlohmann::json& entry, uint64_t dataBytes, const std::string& where) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() || !entry.contains("shape") ||
      !entry["shape"].is_array() || !entry.contains("data_offsets") || !entry["data_offsets"].is_array() ||
      entry["data_offsets"].size() != 2) {
    throw UsageError(where + ": the header entry lacks dtype, shape or data_offsets");
  }
  const auto name = entry["dtype"].get<std::string>();
  const Dtype* const dtype = findDtype(name);
  if (dtype == nullptr) {
    throw UsageError(fmt::format("{}: unknown dtype {:?}", where, name));
  }
  StoredTensor tensor{.dtype = dtype->name, .shape = {}};
  uint64_t elements = 1;
  for (const auto& dimension : entry["shape"]) {
    const uint64_t d = unsignedOr(dimension, where + ": a dimension");
    if (d > kMaxElements || (d != 0 && elements > kMaxElements / d)) {
      throw UsageError(where + ": the shape is too large");
    }
    elements *= d;
    tensor.shape.push_back(static_cast<int64_t>(d));
  }
  const uint64_t begin = unsignedOr(entry["data_offsets"][0], where + ": data_offsets");
  const uint64_t end = unsignedOr(entry["data_offsets"][1], where + ": data_offsets");
  if (begin > end || end > dataBytes) {
    throw UsageError(
        fmt::format("{}: bytes {} to {} lie outside the file's {} bytes of data: the file is truncated or damaged",
                    where, begin, end, dataBytes));
  }
  if (end - begin != elements * dtype->bytes) {
    throw UsageError(
        fmt::format("{}: {} bytes where its shape and dtype need {}", where, end - begin, elements * dtype->bytes));
  }
  tensor.begin = begin;
  tensor.bytes = end - begin;
  return tensor;
}

std::map<std::string, std::string> parseMetadata(const nlohmann::json& entry, const std::string& path) {
  std::map<std::string, std::string> metadata;
  if (!entry.is_object()) {
    throw UsageError(path + ": __metadata__ is not an object");
  }
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) {
      throw UsageError(fmt::format("{}: __metadata__ {:?} is not a string", path, key));
    }
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

// What the parser asks about each part of a header as it comes. An entry is taken from it once it is whole, so that it
// never holds more than one.
class HeaderEntries {
 public:
  using Take = std::function<void(const std::string& name, const nlohmann::json& entry)>;
  HeaderEntries(const std::string& path, Take take) : path_(path), take_(std::move(take)) {}

  // Whether the parser is to keep the part. `depth`: 0 of the header itself, 1 of an entry, 2 of what is in it, 3 of
  // its arrays' numbers.
  bool keeps(int depth, nlohmann::json::parse_event_t event, const nlohmann::json& part) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::key && depth == 1) {
      name_ = part.get<std::string>();
      keys_ = 0;
    } else if (event == Event::key && name_ != kMetadata) {
      return part == "dtype" || part == "shape" || part == "data_offsets";
    } else if (event == Event::key && ++keys_ > kMaxMetadata) {
      throw UsageError(fmt::format("{}: more than {} entries in {}", path_, kMaxMetadata, kMetadata));
    } else if ((event == Event::object_start && depth > 1) || (event == Event::array_start && depth != 2)) {
      throw UsageError(depth == 0
                           ? noObject()
                           : fmt::format("{}: {:?} is no entry of a header: it is nested otherwise", path_, name_));
    } else if (event == Event::array_start) {
      elements_ = 0;
    } else if (event == Event::value && depth == 3 && ++elements_ > kMaxElementsOfAnArray) {
      throw UsageError(
          fmt::format("{}: tensor {:?}: an array of more than {} numbers", path_, name_, kMaxElementsOfAnArray));
    } else if (depth == 1 && (event == Event::object_end || event == Event::value)) {
      take_(name_, part);
      return false;
    }
    return true;
  }
  std::string noObject() const { return path_ + ": not a safetensors file: the header is not a JSON object"; }

 private:
  const std::string& path_;
  const Take take_;
  std::string name_;  // of the entry
  size_t keys_ = 0, elements_ = 0;
};

}  // namespace

size_t elementBytes(std::string_view dtype) {
  const Dtype* const found = findDtype(dtype);
  return found != nullptr ? found->bytes : 0;
}

void requireFinite(const std::string& name, std::string_view dtype, std::span<const std::byte> bytes,
                   const std::string& path) {
  if (const std::string bad = firstNotFinite(dtype, bytes); !bad.empty()) {
    throw LastingError(fmt::format("{}tensor {} holds {}: the run has diverged",
                                   path.empty() ? "" : path + " is not written: ", name, bad));
  }
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  if (file_.size() < kLengthBytes) {
    throw UsageError(
        fmt::format("{}: not a safetensors file: {} bytes, the header length alone takes 8", path, file_.size()));
  }
  std::array<std::byte, kLengthBytes> length{};
  file_.read(0, length);
  const uint64_t headerBytes = readLength(length), afterLength = file_.size() - kLengthBytes;
  if (headerBytes > kMaxHeaderBytes) {
    throw UsageError(
        fmt::format("{}: not a safetensors file: it begins with a header length of {} bytes", path, headerBytes));
  }
  if (headerBytes > afterLength) {
    throw UsageError(fmt::format("{}: truncated: {} bytes, its header alone needs {}", path, file_.size(),
                                 headerBytes + kLengthBytes));
  }
  const uint64_t dataBytes = afterLength - headerBytes;
  JsonInput text(file_, kLengthBytes, headerBytes);
  HeaderEntries entries(path, [&](const std::string& name, const nlohmann::json& entry) {
    const bool isNew =
        name != kMetadata
            ? tensors_.try_emplace(name, parseTensor(entry, dataBytes, fmt::format("{}: tensor {:?}", path, name)))
                  .second
            : std::exchange(metadata_, parseMetadata(entry, path)).empty();
    if (!isNew) {
      throw UsageError(fmt::format("{}: {:?} is there twice", path, name));
    }
  });
  const auto header = text.parse([&](int depth, nlohmann::json::parse_event_t event, const nlohmann::json& part) {
    return entries.keeps(depth, event, part);
  });
  if (!header.is_object()) {
    throw UsageError(entries.noObject());
  }
  dataBegin_ = kLengthBytes + headerBytes;
  checkRanges(dataBytes);
}

// The format allows neither holes nor overlaps: checking it also finds a file cut in its last tensor.
void SafetensorsFile::checkRanges(uint64_t dataBytes) const {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  ranges.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) {
    ranges.emplace_back(tensor.begin, tensor.begin + tensor.bytes);
  }
  std::sort(ranges.begin(), ranges.end());
  uint64_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != covered) {
      throw UsageError(fmt::format("{}: tensors overlap or leave a hole at byte {} of the data", path(), covered));
    }
    covered = end;
  }
  if (covered != dataBytes) {
    throw UsageError(fmt::format("{}: {} bytes of data, the tensors need {}", path(), dataBytes, covered));
  }
}

std::string SafetensorsFile::metadata(const std::string& key, const std::string& missing) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? missing : found->second;
}

void SafetensorsFile::read(const StoredTensor& tensor, uint64_t offset, std::span<std::byte> out) const {
  GLOO_BYPASS_CHECK(offset <= tensor.bytes && out.size() <= tensor.bytes - offset);
  file_.read(dataBegin_ + tensor.begin + offset, out);
}

void writeSafetensors(const std::string& path, const std::map<std::string, TensorView>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::map<std::string, TensorSource> sources;
  for (const auto& [name, view] : tensors) {
    sources.emplace(name, TensorSource{view.dtype, view.shape, [bytes = view.bytes] { return bytes; }});
  }
  writeSafetensors(path, sources, metadata);
}

void writeSafetensors(const std::string& path, const std::map<std::string, TensorSource>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  uint64_t offset = 0;
  std::vector<uint64_t> sizes;
  for (const auto& [name, source] : tensors) {
    uint64_t bytes = elementBytes(source.dtype);
    for (const int64_t dimension : source.shape) {
      bytes *= static_cast<uint64_t>(dimension);
    }
    header[name] = {{"dtype", source.dtype}, {"shape", source.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
    sizes.push_back(bytes);
  }
  std::string text = header.dump();
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  std::string length;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length.push_back(static_cast<char>(static_cast<uint64_t>(text.size()) >> (8 * i) & 0xFF));
  }
  AtomicFile file(path);
  file.write(length);
  file.write(text);
  size_t index = 0;
  for (const auto& [name, source] : tensors) {
    const auto bytes = source.bytes();
    if (bytes.size() != sizes[index++]) {
      throw std::logic_error("writeSafetensors: bytes of " + name + " do not match its shape");
    }
    requireFinite(name, source.dtype, bytes, path);
    file.write(bytes);
  }
  file.commit();
}

}  // namespace gloo_bypass::trainer
