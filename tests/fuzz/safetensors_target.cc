// A file of weights that someone else made: opened, and every tensor read as its entry says.
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "tools/common/error.h"
#include "trainer/files/safetensors.h"
#include "transport/base/check.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/printable.h"

namespace gloo_bypass::fuzz {
namespace {

constexpr std::size_t kLengthBytes = 8;  // before the header

// A file without a place in the file system. Its path.
std::string fileOf(const FileDescriptor& memory, std::span<const std::uint8_t> bytes) {
  GLOO_BYPASS_CHECK(::ftruncate(memory.get(), 0) == 0);
  const auto written = ::pwrite(memory.get(), bytes.data(), bytes.size(), 0);
  GLOO_BYPASS_CHECK(written == static_cast<ssize_t>(bytes.size()));
  return "/proc/self/fd/" + std::to_string(memory.get());
}

}  // namespace

void fuzzSafetensors(std::span<const std::uint8_t> input) {
  static const FileDescriptor memory(::memfd_create("safetensors", MFD_CLOEXEC));
  const std::string path = fileOf(memory, input);
  try {
    const trainer::SafetensorsFile file(path);
    for (const auto& [name, tensor] : file.tensors()) {
      GLOO_BYPASS_CHECK(tensor.bytes <= input.size() && tensor.begin <= input.size() - kLengthBytes - tensor.bytes);
      std::vector<std::byte> values(tensor.bytes);
      file.read(tensor, 0, values);
    }
  } catch (const ProgramError& error) {
    const std::string line = error.what();
    GLOO_BYPASS_CHECK(!line.empty() && printable(line) == line);
  }
}

}  // namespace gloo_bypass::fuzz
