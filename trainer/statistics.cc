#include "trainer/statistics.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

namespace gloo_bypass::trainer {
namespace {

std::vector<double> sorted(std::span<const double> values) {
  if (values.empty()) {
    throw std::invalid_argument("statistics of no values");
  }
  std::vector<double> copy(values.begin(), values.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

} // namespace

double percentile(std::span<const double> values, double fraction) {
  const auto ordered = sorted(values);
  const double rank = std::ceil(fraction * static_cast<double>(ordered.size()));
  const auto index = static_cast<size_t>(std::max(rank, 1.0)) - 1;
  return ordered[std::min(index, ordered.size() - 1)];
}

double median(std::span<const double> values) {
  const auto ordered = sorted(values);
  const size_t middle = ordered.size() / 2;
  return ordered.size() % 2 == 1 ? ordered[middle] : (ordered[middle - 1] + ordered[middle]) / 2;
}

} // namespace gloo_bypass::trainer
