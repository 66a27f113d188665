// A progress bar on the standard error, where that is a terminal; nothing otherwise.
#pragma once

#include <cstdint>

#include "trainer/metrics/metrics.h"

namespace gloo_bypass::trainer {

class ProgressBar {
 public:
  // Draws only if `wanted` and the standard error is a terminal.
  ProgressBar(bool wanted, int64_t firstStep, int64_t lastStep);
  ~ProgressBar();  // ends the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void show(const StepMetrics& metrics);

 private:
  bool isDrawn_;
  bool isLineOpen_ = false;
  int64_t firstStep_, lastStep_;
  double seconds_ = 0;
};

}  // namespace gloo_bypass::trainer
