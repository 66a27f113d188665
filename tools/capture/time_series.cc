#include "tools/capture/time_series.h"

#include <algorithm>
#include <limits>

namespace gloo_bypass::capture {

void TimeSeries::add(std::chrono::nanoseconds sinceStart, std::uint64_t bytes) {
  const std::int64_t at = std::max<std::int64_t>(sinceStart.count(), 0);
  while (static_cast<std::uint64_t>(at / interval_.count()) >= maxBins_) {
    if (interval_.count() > std::numeric_limits<std::int64_t>::max() / 2) return;
    for (std::size_t i = 0; i < bins_.size(); ++i) {
      const std::uint64_t value = bins_[i];
      bins_[i] = 0;
      bins_[i / 2] += value;
    }
    bins_.resize((bins_.size() + 1) / 2);
    interval_ *= 2;
  }
  const auto bin = static_cast<std::size_t>(at / interval_.count());
  if (bins_.size() <= bin) bins_.resize(bin + 1);
  bins_[bin] += bytes;
}

}  // namespace gloo_bypass::capture
