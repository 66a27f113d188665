#include "tools/capture/step_statistics.h"

#include <functional>
#include <utility>

#include "tools/common/statistics.h"
#include "transport/base/seconds.h"

namespace gloo_bypass::capture {

std::optional<double> bitsPerSecond(std::uint64_t bytes, CaptureTime time) {
  if (time <= CaptureTime::zero()) return {};
  return static_cast<double>(bytes) * 8 / secondsOf(time);
}

Spread spreadOf(std::vector<double> values) {
  values = sorted(std::move(values));
  Spread spread;
  for (std::size_t i = 0; i < spread.size(); ++i) spread[i] = percentile(values, kPercentiles[i]);
  return spread;
}

namespace {

std::optional<StepStatistics> statisticsOf(const Analysis& analysis,
                                           const std::function<std::uint64_t(const StepWindow&)>& bytesOfStep) {
  std::vector<double> bytes, seconds, rates;
  for (const StepWindow& step : analysis.steps().steps()) {
    if (!step.complete) continue;
    const std::uint64_t stepBytes = bytesOfStep(step);
    bytes.push_back(static_cast<double>(stepBytes));
    seconds.push_back(step.seconds());
    if (const auto rate = bitsPerSecond(stepBytes, step.end - step.begin)) rates.push_back(*rate);
  }
  if (bytes.empty()) return {};
  const std::size_t steps = bytes.size();
  return StepStatistics{steps, spreadOf(std::move(bytes)), spreadOf(std::move(seconds)), spreadOf(std::move(rates))};
}

}  // namespace

std::optional<StepStatistics> stepStatistics(const Analysis& analysis) {
  return statisticsOf(analysis, [](const StepWindow& step) { return step.bytes; });
}

std::optional<StepStatistics> stepStatistics(const Analysis& analysis, std::size_t direction) {
  const auto& entries = analysis.steps().directions();
  return statisticsOf(analysis, [&](const StepWindow& step) {
    for (std::size_t i = step.directionsBegin; i < step.directionsEnd; ++i) {
      if (entries[i].first == direction) return entries[i].second;
    }
    return std::uint64_t{0};
  });
}

std::uint64_t bytesOf(const TrafficMatrix& matrix) {
  std::uint64_t bytes = matrix.others().bytes;
  for (const auto& [direction, totals] : matrix.directions()) bytes += totals.bytes;
  return bytes;
}

std::optional<double> trainingBitsPerSecond(const Analysis& analysis) {
  const auto& time = analysis.trainingTime();
  if (!time) return {};
  return bitsPerSecond(bytesOf(analysis.training()), time->second - time->first);
}

std::optional<double> captureBitsPerSecond(const Analysis& analysis) {
  return bitsPerSecond(analysis.totals().bytes, analysis.totals().last - analysis.totals().first);
}

}  // namespace gloo_bypass::capture
