#include "trainer/distributed/compression/gathered_sums.h"

#include <ATen/ATen.h>

#include "trainer/distributed/compression/error_feedback.h"

namespace gloo_bypass::trainer {
namespace {

// Sums of vectors, one after the other.
class Sum {
 public:
  // `sum`: (n), where the sum is to be.
  Sum(const at::Tensor& sum, bool compensated) : sum_(sum) {
    sum_.zero_();
    if (compensated) {
      lost_ = at::zeros_like(sum_);
    }
  }

  void add(const at::Tensor& values) {
    if (!lost_.defined()) {
      sum_.add_(values);
      return;
    }
    const auto next = sum_ + values;
    // Exact, where the larger one of the two comes first.
    lost_.add_(at::where(sum_.abs() >= values.abs(), (sum_ - next) + values, (values - next) + sum_));
    sum_.copy_(next);
  }

  void finish() {
    if (lost_.defined()) {
      // An infinite sum has lost NaN.
      sum_.add_(at::where(at::isfinite(sum_), lost_, at::zeros_like(lost_)));
    }
  }

 private:
  at::Tensor sum_, lost_;
};

}  // namespace

void GatheredSums::reduce(std::span<const GradientPart> parts, int64_t /*step*/, Wire& wire) {
  std::vector<at::Tensor> values;
  for (const GradientPart& part : parts) {
    values.push_back(part.gradient.reshape({-1}));
  }
  const auto mine = at::cat(values);  // of one type, as a bucket is
  const auto messages = wire.gather(mine.view(at::kByte));
  wire.finished();
  int64_t begin = 0;
  for (const GradientPart& part : parts) {
    const int64_t count = part.gradient.numel();
    const InPlace mean(part.gradient);
    Sum sum(mean.values(), compensated_);
    for (const auto& message : messages) {
      sum.add(message.view(mine.scalar_type()).slice(0, begin, begin + count).to(mean.values().scalar_type()));
    }
    sum.finish();
    mean.values().div_(wire.worldSize());
    begin += count;
  }
}

}  // namespace gloo_bypass::trainer
