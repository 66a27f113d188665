// Whether stored numbers are numbers: a NaN or an infinity among weights spoils everything that is computed from them.
//
// Looks at bits, a few gigabytes a second. Pure; no torch.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace gloo_bypass::trainer {

// "nan at element 5" for the first element that is NaN or infinite; empty: all are finite. `dtype` as safetensors has
// it; other types than F16, BF16, F32 and F64 hold neither. `bytes` need no alignment.
std::string firstNotFinite(std::string_view dtype, std::span<const std::byte> bytes);

// "nan", "inf" or "-inf", of a value that is not finite: fmt tells a NaN's sign, which means nothing.
const char* nameOfNotFinite(double value);

}  // namespace gloo_bypass::trainer
