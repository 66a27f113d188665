// Files, so that a crash or a full disk never leaves half a result behind.
//
// Every function and constructor throws ProgramError naming the path and the system's reason. None is
// thread-safe for one object; different objects are independent.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "trainer/files/temporary_path.h"
#include "transport/base/file_descriptor.h"

namespace gloo_bypass::trainer {

// A regular file, read where it is asked for. Nothing maps it: under a mapping a file that becomes shorter ends the
// process with SIGBUS, or reads as zeros up to the page's end.
class InputFile {
 public:
  // Throws UsageError.
  explicit InputFile(const std::string& path);
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // when it was opened
  // Fills `out`. Throws LastingError where the file has no such bytes any more. Any thread.
  void read(uint64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  FileDescriptor file_;
  uint64_t size_ = 0;
};

// Reads a whole file, which must be a regular one of at most maxBytes.
std::string readFile(const std::string& path, size_t maxBytes);

// A text file from front to back, in pieces that can be read alone: only one of them is in memory.
class TextPieces {
 public:
  // How many bytes of `text` make the first piece; 0: it shows no place to cut yet, read more. Not called at the file's
  // end.
  using Cut = std::function<size_t(std::string_view text)>;
  TextPieces(const std::string& path, Cut cut, size_t pieceBytes);
  // Valid until the next call; empty: that was all. Throws as InputFile::read().
  std::string_view next();
  static constexpr size_t kUsualBytes = 16 << 20;  // of a piece, about

 private:
  InputFile file_;
  Cut cut_;
  size_t pieceBytes_;
  std::string text_;  // read, and not given yet but for the first given_ bytes
  size_t given_ = 0;
  uint64_t read_ = 0;
};

// Refuses a `path` that AtomicFile cannot write: a folder that is not there or may not be written, and what is no
// regular file, a device above all, which would be replaced. Call it before hours of work.
void checkReplaceable(const std::string& path);

// Writes to a temporary file beside `path`; commit() syncs it, renames it over `path` and syncs the folder. Destroyed
// without commit(), it removes the temporary file: `path` is either the old or the whole new file. What killed writers
// have left beside `path` is removed first.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();

 private:
  std::string path_;
  TemporaryPath temporary_;
  FileDescriptor file_;  // closed before it is removed
};

// A log of lines. Each line leaves in one write(2), so that a killed process loses none it had written, and is
// forced to the disk at most once each kSyncInterval, so that a machine that loses power loses little.
class LineWriter {
 public:
  enum class Existing { kReplace, kAppendTo };
  // "-" is the standard output, anything else a file.
  explicit LineWriter(const std::string& path, Existing existing = Existing::kReplace);
  void writeLine(std::string line);
  // Forces everything to the disk, which reports the errors of writing that come late.
  void close();

 private:
  void sync();
  static constexpr std::chrono::seconds kSyncInterval{1};
  std::string path_;
  FileDescriptor file_;
  bool isStandardOutput_ = false, endsInLine_ = true;
  std::chrono::steady_clock::time_point lastSync_;
};

}  // namespace gloo_bypass::trainer
