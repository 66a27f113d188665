// The one exception the trainer throws for what a user can do something about.
//
// what() is a single line that says what was wrong, where, and what to do. main() prints it after
// "ddp_train: " and exits with code(): kBadInput for options, files and environment, kRunFailed for what went
// wrong while running (a full disk, a peer that vanished).
#pragma once

#include <stdexcept>
#include <string>

namespace gloo_bypass::trainer {

enum ExitCode : int { kRunFailed = 1, kBadInput = 2 };

class TrainerError : public std::runtime_error {
 public:
  TrainerError(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

inline TrainerError badInput(const std::string& message) { return {kBadInput, message}; }
inline TrainerError runFailed(const std::string& message) { return {kRunFailed, message}; }

} // namespace gloo_bypass::trainer
