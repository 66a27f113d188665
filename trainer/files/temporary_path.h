// Names of files and folders that are being written. The destructor removes what is not finished, and so do SIGINT,
// SIGTERM and SIGHUP after removeTemporariesOnSignals(). Only SIGKILL and a lost machine leave it behind;
// removeLeftovers() then removes it.
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
  // Gives it its final name; nobody removes it from then on. False, with errno: that failed, and it stays temporary.
  bool renameTo(const std::string& target);

 private:
  std::string path_;  // empty: renamed
};

// Call it once, in a process that starts no others: signals then end it after its temporaries are removed. Signals that
// are ignored (nohup) stay so. A second signal of a kind ends the process at once.
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
