#include "trainer/files/file_io.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "tools/common/error.h"

namespace gloo_bypass::trainer {
namespace {

std::string reason(int error) { return std::strerror(error); }

void writeAll(int fd, const std::string& path, std::span<const std::byte> bytes) {
  // Linux writes at most 2 GiB a call; a short write is normal.
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      throw LastingError(fmt::format("cannot write {}: {}", path, reason(n < 0 ? errno : ENOSPC)));
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

// Not if a full disk has cut the last line off. Pipes and devices have no last byte.
bool endsWithALine(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) {
    return true;  // to open a pipe for reading would be to wait
  }
  std::ifstream file(path, std::ios::binary);
  return !file.seekg(-1, std::ios::end) || file.get() == '\n';
}

// A folder of shards may have more files than a process may open unasked.
int openForReading(const std::string& path) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;  // a FIFO is refused, not waited for
  int file = ::open(path.c_str(), kFlags);
  if (file >= 0 || errno != EMFILE) {
    return file;
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  return ::open(path.c_str(), kFlags);
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path), file_(openForReading(path)) {
  struct stat info{};
  if (file_.get() < 0 || ::fstat(file_.get(), &info) != 0) {
    throw UsageError(fmt::format("cannot read {}: {}", path, reason(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    throw UsageError(fmt::format("cannot read {}: it is not a regular file", path));
  }
  size_ = static_cast<uint64_t>(info.st_size);
}

void InputFile::read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(file_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      throw LastingError(fmt::format("cannot read {}: {}", path_,
                                     n < 0 ? reason(errno) : "it has become shorter since it was opened"));
    }
    offset += static_cast<uint64_t>(n);
    out = out.subspan(static_cast<size_t>(n));
  }
}

std::string readFile(const std::string& path, size_t maxBytes) {
  const InputFile file(path);
  if (file.size() > maxBytes) {
    throw UsageError(fmt::format("cannot read {}: {} bytes, more than the {} accepted", path, file.size(), maxBytes));
  }
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

TextPieces::TextPieces(const std::string& path, Cut cut, size_t pieceBytes)
    : file_(path), cut_(std::move(cut)), pieceBytes_(pieceBytes) {}

std::string_view TextPieces::next() {
  text_.erase(0, given_);
  given_ = 0;
  for (;;) {
    const uint64_t left = file_.size() - read_;
    given_ = left == 0 || text_.empty() ? text_.size() : std::min(cut_(text_), text_.size());
    if (given_ > 0 || left == 0) {
      return std::string_view(text_).substr(0, given_);
    }
    // As much again where no cut was found: whoever looks for one looks through all of it anew.
    const size_t more = static_cast<size_t>(std::min<uint64_t>(left, std::max(pieceBytes_, text_.size())));
    text_.resize(text_.size() + more);
    file_.read(read_, std::as_writable_bytes(std::span(text_)).last(more));
    read_ += more;
  }
}

void checkReplaceable(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    throw UsageError(fmt::format("cannot write {}: it is there and is not a regular file", path));
  }
  if (std::error_code ignored; std::filesystem::is_symlink(path, ignored) && std::filesystem::exists(path, ignored)) {
    throw UsageError(fmt::format("cannot write {}: it is a symbolic link to a file: name the file itself", path));
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) {
    throw UsageError(fmt::format("cannot write {}: its folder: {}", path, reason(errno)));
  }
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), temporary_(temporaryNameOf(path)) {
  checkReplaceable(path);
  removeLeftovers(path);
  const char* const name = temporary_.path().c_str();
  ::unlink(name);  // of a process that had our number
  file_ = FileDescriptor(::open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (file_.get() < 0) {
    throw LastingError(fmt::format("cannot create {}: {}", temporary_.path(), reason(errno)));
  }
  markInUse(file_);
}

void AtomicFile::write(std::span<const std::byte> bytes) { writeAll(file_.get(), temporary_.path(), bytes); }

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

void AtomicFile::commit() {
  if (::fsync(file_.get()) != 0) {
    throw LastingError(fmt::format("cannot write {}: {}", temporary_.path(), reason(errno)));
  }
  if (!temporary_.renameTo(path_)) {
    throw LastingError(fmt::format("cannot rename {} to {}: {}", temporary_.path(), path_, reason(errno)));
  }
  file_.reset();
  // The rename itself must survive a power cut; a file system that cannot sync a folder is not an error.
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  FileDescriptor parent(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent.get() >= 0) {
    ::fsync(parent.get());
  }
}

LineWriter::LineWriter(const std::string& path, Existing existing)
    : path_(path), lastSync_(std::chrono::steady_clock::now()) {
  isStandardOutput_ = path == "-";
  if (isStandardOutput_) {
    path_ = "the standard output";
    file_ = FileDescriptor(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  } else {
    const int truncate = existing == Existing::kReplace ? O_TRUNC : 0;
    file_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | truncate, 0644));
    endsInLine_ = existing == Existing::kReplace || endsWithALine(path);
  }
  if (file_.get() < 0) {
    throw UsageError(fmt::format("cannot write {}: {}", path_, reason(errno)));
  }
}

void LineWriter::writeLine(std::string line) {
  if (!std::exchange(endsInLine_, true)) {
    line.insert(line.begin(), '\n');
  }
  line.push_back('\n');
  writeAll(file_.get(), path_, std::as_bytes(std::span(line.data(), line.size())));
  const auto now = std::chrono::steady_clock::now();
  if (!isStandardOutput_ && now - lastSync_ >= kSyncInterval) {
    lastSync_ = now;
    sync();
  }
}

void LineWriter::close() {
  sync();
  file_.reset();
}

void LineWriter::sync() {
  // A pipe or a terminal cannot be synced.
  if (::fdatasync(file_.get()) != 0 && errno != EINVAL && errno != EROFS) {
    throw LastingError(fmt::format("cannot write {}: {}", path_, reason(errno)));
  }
}

}  // namespace gloo_bypass::trainer
