#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gloo_bypass::fuzz::fuzzDescription({data, size});
  return 0;
}
