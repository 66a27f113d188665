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

#include "trainer/files/file_io.h"

namespace gloo_bypass::trainer {

// A tensor in a file.
struct StoredTensor {
  std::string_view dtype;  // as the format writes it: F32, F64, F16, BF16, I64, U8, ...; lives as long as the program
  std::vector<int64_t> shape;
  uint64_t begin = 0, bytes = 0;  // where it is in the file's data
};

// A file that is open: its header in memory, its tensors read when they are asked for. A header costs at most four
// times its bytes.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // `missing` where the file has no such entry.
  std::string metadata(const std::string& key, const std::string& missing = {}) const;
  const std::string& path() const { return file_.path(); }
  // Fills `out` with what is at byte `offset` of one of tensors(), which must have as many. Throws LastingError where
  // the file has become shorter. Any thread.
  void read(const StoredTensor& tensor, uint64_t offset, std::span<std::byte> out) const;

 private:
  void checkRanges(uint64_t dataBytes) const;

  InputFile file_;
  uint64_t dataBegin_ = 0;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// A tensor in memory that is to be written.
struct TensorView {
  std::string dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

// A tensor to write. writeSafetensors() asks for its bytes when it writes them, so that not all tensors need to be in
// memory at once.
struct TensorSource {
  std::string dtype;
  std::vector<int64_t> shape;
  std::function<std::span<const std::byte>()> bytes;  // valid until the next source is asked
};

// Writes name -> source in the map's order; each source is asked once, in that order. A NaN or an infinity in any of
// them is a ProgramError, and what `path` holds stays.
void writeSafetensors(const std::string& path, const std::map<std::string, TensorSource>& tensors,
                      const std::map<std::string, std::string>& metadata);

// Writes name -> view in the map's order. The views' bytes must match dtype and shape (checked).
void writeSafetensors(const std::string& path, const std::map<std::string, TensorView>& tensors,
                      const std::map<std::string, std::string>& metadata);

// The check that writeSafetensors makes of each tensor's bytes, for other ranks that hold them. `path` may be empty.
void requireFinite(const std::string& name, std::string_view dtype, std::span<const std::byte> bytes,
                   const std::string& path);

// Bytes of one element, or 0 for a dtype the format does not know.
size_t elementBytes(std::string_view dtype);

}  // namespace gloo_bypass::trainer
