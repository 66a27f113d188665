// Names under which something is being written. What is not finished goes with whoever wrote it: by the destructor, and
// by SIGINT, SIGTERM and SIGHUP, where removeTemporariesOnSignals() has been called. Only SIGKILL and a lost machine
// leave it: removeLeftovers() then.
//
// Different objects are independent, in any thread.
#pragma once

#include <string>

#include "transport/base/file_descriptor.h"

namespace gloo_bypass::trainer {

class TemporaryPath {
 public:
  // Of a file or a folder that is about to be made, or has just been made.
  explicit TemporaryPath(std::string path);
  ~TemporaryPath();  // removes it, and what is in it
  TemporaryPath(const TemporaryPath&) = delete;
  TemporaryPath& operator=(const TemporaryPath&) = delete;

  const std::string& path() const { return path_; }
  // Gives it its name: from here on nobody removes it. False, with errno: it could not be, and stays temporary.
  bool renameTo(const std::string& target);

 private:
  std::string path_;  // empty: renamed
};

// Once, in a process that starts no others: the signals that end it do so after its temporaries are removed. Those that
// are ignored, as nohup has it, stay so. The second of a kind ends it at once.
void removeTemporariesOnSignals();

// "PATH.tmp.PID" of a process.
std::string temporaryNameOf(const std::string& path);
// Marks an open temporary as in use, as long as the descriptor is open in any process.
void markInUse(const FileDescriptor& file);
// Removes the files PATH.tmp.PID that nobody writes any more.
void removeLeftovers(const std::string& path);
// Whether `path` is such a file, for a PATH known otherwise.
bool isLeftover(const std::string& path);
// Whether somebody has marked the file or folder.
bool isInUse(const std::string& path);

}  // namespace gloo_bypass::trainer
