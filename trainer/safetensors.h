// The safetensors file format: 8 bytes of little-endian header length, a JSON header, then the tensors' bytes.
//
// Reading trusts nothing: every length, shape and offset is checked before use, and a truncated or foreign file is
// refused with the reason (ProgramError). Writing is atomic (AtomicFile). No torch in here: tensors are byte ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/file_io.h"

namespace gloo_bypass::trainer {

struct TensorView {
  std::string dtype; // as the format writes it: F32, F64, F16, BF16, I64, U8, ...
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

// Owns the mapped file; the views stay valid as long as it lives.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return file_.path(); }

 private:
  MappedFile file_;
  std::map<std::string, TensorView> tensors_;
  std::map<std::string, std::string> metadata_;
};

// What a tensor to be written is, and where its bytes come from when its turn has come: so that not all need to be in memory at once.
struct TensorSource {
  std::string dtype;
  std::vector<int64_t> shape;
  std::function<std::span<const std::byte>()> bytes; // valid until the next source is asked
};

// Writes name -> source in the map's order; each source is asked once, in that order. A NaN or an infinity in any of
// them is a ProgramError, and what `path` holds stays.
void writeSafetensors(
    const std::string& path, const std::map<std::string, TensorSource>& tensors,
    const std::map<std::string, std::string>& metadata);

// Writes name -> view in the map's order. The views' bytes must match dtype and shape (checked).
void writeSafetensors(
    const std::string& path, const std::map<std::string, TensorView>& tensors,
    const std::map<std::string, std::string>& metadata);

// What writeSafetensors does with each tensor's bytes, for whoever holds them as well. `path` may be empty.
void requireFinite(const std::string& name, std::string_view dtype, std::span<const std::byte> bytes,
                   const std::string& path);

// Bytes of one element, or 0 for a dtype the format does not know.
size_t elementBytes(std::string_view dtype);

} // namespace gloo_bypass::trainer
