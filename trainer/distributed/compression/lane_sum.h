// Sums that the compiler can make of several elements at a time.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace gloo_bypass::trainer {

// term(value) of all values, added in `Sum`: each eighth one to the same lane, then the lanes. Without values it is
// zero.
template <typename Sum, typename T, typename Term>
Sum laneSum(std::span<const T> values, const Term& term) {
  std::array<Sum, 8> lanes{};
  std::size_t i = 0;
  for (; i + lanes.size() <= values.size(); i += lanes.size()) {
    for (std::size_t j = 0; j < lanes.size(); ++j) lanes[j] += term(values[i + j]);
  }
  for (; i < values.size(); ++i) lanes[0] += term(values[i]);
  Sum sum = 0;
  for (const Sum lane : lanes) sum += lane;
  return sum;
}

}  // namespace gloo_bypass::trainer
