// Real processes for tests: start, feed an environment, collect what they wrote, with a bound on all of it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace gloo_bypass::trainer::testing {

struct Finished {
  int code = -1; // exit status, 128 + signal number for a signal, -1 when it had to be killed at the limit
  std::string out, err;
};

// A running child with its two outputs. The destructor kills what is still running.
class Process {
 public:
  // arguments[0] is the program. `environment` overrides variables of this process; an empty value unsets one.
  // fileSizeLimit: RLIMIT_FSIZE in bytes, 0 for none.
  explicit Process(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment = {},
      size_t fileSizeLimit = 0);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // Reads until the standard output contains `text`; false at the limit or at its end.
  bool waitForOutput(const std::string& text, std::chrono::milliseconds limit);
  Finished wait(std::chrono::milliseconds limit);

 private:
  bool readSome(std::chrono::steady_clock::time_point deadline);
  pid_t pid_ = -1;
  int outFd_ = -1, errFd_ = -1;
  Finished finished_;
};

Finished run(std::vector<std::string> arguments, const std::map<std::string, std::string>& environment = {});

// A folder of its own for one test, removed with its contents at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string contents(const std::string& path);
void write(const std::string& path, const std::string& text);

} // namespace gloo_bypass::trainer::testing
