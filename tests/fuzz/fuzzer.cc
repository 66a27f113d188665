// One target for libFuzzer: FUZZ_TARGET is the function of fuzz_target.h.
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gloo_bypass::fuzz::FUZZ_TARGET({data, size});
  return 0;
}
