#include "trainer/metrics/progress.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <string>

#include <fmt/format.h>

#include "tools/common/error.h"

namespace gloo_bypass::trainer {

ProgressBar::ProgressBar(bool wanted, int64_t firstStep, int64_t lastStep)
    : isDrawn_(wanted && ::isatty(STDERR_FILENO) == 1), firstStep_(firstStep), lastStep_(lastStep) {}

ProgressBar::~ProgressBar() {
  if (isLineOpen_) {
    std::fputc('\n', stderr);
  }
}

void ProgressBar::show(const StepMetrics& m) {
  if (!isDrawn_) {
    return;
  }
  constexpr int64_t kWidth = 24;
  const int64_t filled = lastStep_ > 0 ? m.step * kWidth / lastStep_ : kWidth;
  seconds_ += m.stepSeconds;
  const auto done = static_cast<double>(m.step - firstStep_ + 1);
  const auto left = static_cast<int64_t>(seconds_ / done * static_cast<double>(lastStep_ - m.step) + 0.5);
  writeToStderr(
      fmt::format("\r[{}{}] {}/{}  loss {:.4f}  {:.2f} s/step  t_ar {:.2f} s  {:.0f} tokens/s  {}:{:02} left\x1b[K",
                  std::string(static_cast<size_t>(filled), '='), std::string(static_cast<size_t>(kWidth - filled), ' '),
                  m.step, lastStep_, m.bestLoss().value_or(std::nan("")), m.stepSeconds, m.allReduceSeconds,
                  m.stepSeconds > 0 ? static_cast<double>(m.tokens) / m.stepSeconds : 0, left / 60, left % 60));
  std::fflush(stderr);
  isLineOpen_ = true;
}

}  // namespace gloo_bypass::trainer
