// Files, so that a crash or a full disk never leaves half a result behind.
//
// Every function and constructor throws ProgramError naming the path and the system's reason. None is
// thread-safe for one object; different objects are independent.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "transport/base/file_descriptor.h"

namespace gloo_bypass::trainer {

// A file mapped read-only; bytes() stays valid as long as the object lives.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Reads a whole file, which must be a regular one of at most maxBytes.
std::string readFile(const std::string& path, size_t maxBytes);

// Refuses a `path` that AtomicFile cannot write: a folder that is not there or may not be written, and what is no regular file, a
// device above all, which would be replaced. To be asked before hours of work.
void checkReplaceable(const std::string& path);

// Writes to a temporary file beside `path`; commit() syncs it, renames it over `path` and syncs the folder.
// Destroyed without commit(), it removes the temporary file: `path` is either the old or the whole new file.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  FileDescriptor file_;
  bool committed_ = false;
};

// A log of lines. Each line leaves in one write(2), so that a killed process loses none it had written, and is
// forced to the disk at most once each kSyncInterval, so that a machine that loses power loses little.
class LineWriter {
 public:
  enum class Existing { kReplace, kAppendTo };
  // "-" is the standard output; anything else is a file, and `existing` says what becomes of one that is there.
  explicit LineWriter(const std::string& path, Existing existing = Existing::kReplace);
  void writeLine(std::string line);
  // Forces everything to the disk, which reports the errors of writing that come late.
  void close();

 private:
  void sync();
  static constexpr std::chrono::seconds kSyncInterval{1};
  std::string path_;
  FileDescriptor file_;
  bool isStandardOutput_ = false;
  std::chrono::steady_clock::time_point lastSync_;
};

} // namespace gloo_bypass::trainer
