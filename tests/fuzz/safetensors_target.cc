// A file of weights that someone else made: opened, and every tensor read as its entry says.
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"
#include "tools/common/error.h"
#include "trainer/files/safetensors.h"
#include "transport/base/check.h"

namespace gloo_bypass::fuzz {
namespace {

constexpr std::size_t kLengthBytes = 8;  // before the header

}  // namespace

void fuzzSafetensors(std::span<const std::uint8_t> input) {
  static MemoryFile memory;
  memory.hold(input);
  try {
    const trainer::SafetensorsFile file(memory.path());
    for (const auto& [name, tensor] : file.tensors()) {
      GLOO_BYPASS_CHECK(tensor.bytes <= input.size() && tensor.begin <= input.size() - kLengthBytes - tensor.bytes);
      std::vector<std::byte> values(tensor.bytes);
      file.read(tensor, 0, values);
    }
  } catch (const ProgramError& error) {
    checkLine(error.what());
  }
}

}  // namespace gloo_bypass::fuzz
