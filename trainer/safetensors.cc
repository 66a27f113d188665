#include "trainer/safetensors.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "programs/error.h"
#include "trainer/finite.h"
#include "transport/base/check.h"

namespace gloo_bypass::trainer {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000; // the format's own limit
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
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("data_offsets") ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2) {
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

} // namespace

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
  std::string text(headerBytes, '\0');
  file_.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  const auto header = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) {
    throw UsageError(path + ": not a safetensors file: the header is not a JSON object");
  }
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      metadata_ = parseMetadata(entry, path);
    } else {
      tensors_.emplace(name, parseTensor(entry, dataBytes, fmt::format("{}: tensor {:?}", path, name)));
    }
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

void SafetensorsFile::read(const StoredTensor& tensor, uint64_t offset, std::span<std::byte> out) const {
  GLOO_BYPASS_CHECK(offset <= tensor.bytes && out.size() <= tensor.bytes - offset);
  file_.read(dataBegin_ + tensor.begin + offset, out);
}

void writeSafetensors(
    const std::string& path, const std::map<std::string, TensorView>& tensors,
    const std::map<std::string, std::string>& metadata) {
  std::map<std::string, TensorSource> sources;
  for (const auto& [name, view] : tensors) {
    sources.emplace(name, TensorSource{view.dtype, view.shape, [bytes = view.bytes] { return bytes; }});
  }
  writeSafetensors(path, sources, metadata);
}

void writeSafetensors(
    const std::string& path, const std::map<std::string, TensorSource>& tensors,
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

} // namespace gloo_bypass::trainer
