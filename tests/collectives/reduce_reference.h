// What collectives/reduce.h promises, written again: one element at a time, in 113-bit floating-point numbers and
// 128-bit integers, each step rounded to the element type. Slow.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/operation.h"

namespace gloo_bypass::collectives {

// Elements are bits in the lower bytes. All 65,536 halves decode without error.
std::uint64_t referenceOf(Reduction reduction, ElementType type, std::span<const std::uint64_t> inputs, int ranks);

float decodedFloat16(std::uint16_t bits);
std::uint16_t encodedFloat16(float value);
float decodedBfloat16(std::uint16_t bits);
std::uint16_t encodedBfloat16(float value);

}  // namespace gloo_bypass::collectives
