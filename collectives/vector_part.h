// How ranks share a vector: each has a part of whole cache lines, so that no two write to one. Pure.
#pragma once

#include <algorithm>
#include <cstddef>

namespace gloo_bypass::collectives {

struct VectorPart {
  std::size_t begin = 0, count = 0;  // elements
};

// The part of `count` elements, each of `element` bytes, that belongs to the place `place` of `places`. The parts lie
// one behind the other and are alike, but for the last ones, which are shorter or empty. `element` divides a line.
inline VectorPart partOf(std::size_t count, std::size_t element, int place, std::size_t places) {
  constexpr std::size_t kLineBytes = 64;
  const std::size_t line = kLineBytes / element;
  const std::size_t each = (count + places * line - 1) / (places * line) * line;
  const std::size_t begin = std::min(count, each * static_cast<std::size_t>(place));
  return {begin, std::min(each, count - begin)};
}

}  // namespace gloo_bypass::collectives
