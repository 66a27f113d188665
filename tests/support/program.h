// Runs a program under test with arguments and environment, collects its output, and bounds every wait. Used by one
// thread. The destructor kills a running program.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace gloo_bypass {

struct ProgramResult {
  int exitStatus = -1;  // -1: ended by a signal or killed after the time limit
  int signal = 0;
  int shellStatus() const { return signal != 0 && !timedOut ? 128 + signal : exitStatus; }
  bool timedOut = false;
  std::string out, err;
  std::chrono::duration<double> elapsed{};  // since start
};

class Program {
 public:
  // `environment` is added to this process's; an empty value removes a variable. fileSizeLimit: RLIMIT_FSIZE in bytes,
  // 0 for none.
  Program(const std::string& path, const std::vector<std::string>& arguments,
          const std::map<std::string, std::string>& environment = {}, std::size_t fileSizeLimit = 0);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  // Collects output until stdout contains `text`; false if the limit or the end comes first.
  bool waitForOutput(const std::string& text, std::chrono::seconds limit);
  const std::string& out() const { return out_; }
  // Collects output until the program ends; kills it at the limit.
  ProgramResult finish(std::chrono::seconds limit);

 private:
  // Waits for output until `deadline` at most; false once both pipes are closed or the deadline has passed.
  bool pump(std::chrono::steady_clock::time_point deadline);

  pid_t pid_ = -1;
  int outPipe_ = -1, errPipe_ = -1;
  std::string out_, err_;
  std::chrono::steady_clock::time_point start_;
};

ProgramResult runProgram(const std::string& path, const std::vector<std::string>& arguments,
                         const std::map<std::string, std::string>& environment = {},
                         std::chrono::seconds limit = std::chrono::seconds(50));

}  // namespace gloo_bypass
