#include "tools/common/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gloo_bypass {

double mean(std::span<const double> values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::vector<double> sorted(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values;
}

double percentile(std::span<const double> ascending, double p) {
  if (ascending.empty()) return 0;
  const double place = std::clamp(p, 0.0, 100.0) / 100.0 * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(place));
  const std::size_t above = std::min(below + 1, ascending.size() - 1);
  return std::lerp(ascending[below], ascending[above], place - static_cast<double>(below));
}

}  // namespace gloo_bypass
