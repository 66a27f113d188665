// How a simulation is interrupted: SIGINT, SIGTERM and SIGHUP ask it to stop, and a second one ends the process.
#pragma once

#include <atomic>
#include <csignal>

#include "tools/common/result_file.h"

namespace gloo_bypass::sim {

inline constexpr int kInterrupted = 130;  // the exit status

inline std::atomic<bool> stopWanted{false};

inline bool goOn() { return !stopWanted.load(std::memory_order_relaxed); }

inline void handleStopSignals() {
  struct sigaction action{};
  action.sa_handler = [](int) { stopWanted.store(true, std::memory_order_relaxed); };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second one ends the process as it would have without us
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) (void)::sigaction(number, &action, nullptr);
  makeWriteSignalsErrors();
}

}  // namespace gloo_bypass::sim
