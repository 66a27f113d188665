#include "trainer/file_io.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "programs/error.h"

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

struct Opened {
  FileDescriptor file;
  size_t size;
};

Opened openRegular(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    throw UsageError(fmt::format("cannot read {}: {}", path, reason(errno)));
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) {
    throw UsageError(fmt::format("cannot read {}: {}", path, reason(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    throw UsageError(fmt::format("cannot read {}: it is not a regular file", path));
  }
  return {std::move(file), static_cast<size_t>(info.st_size)};
}

} // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Opened opened = openRegular(path);
  size_ = opened.size;
  if (size_ == 0) {
    return; // mmap refuses an empty range; an empty span says the same
  }
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, opened.file.get(), 0);
  if (address == MAP_FAILED) {
    throw UsageError(fmt::format("cannot map {}: {}", path, reason(errno)));
  }
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
}

std::string readFile(const std::string& path, size_t maxBytes) {
  const Opened opened = openRegular(path);
  if (opened.size > maxBytes) {
    throw UsageError(fmt::format("cannot read {}: {} bytes, more than the {} accepted", path, opened.size, maxBytes));
  }
  std::string text(opened.size, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::read(opened.file.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      throw LastingError(fmt::format("cannot read {}: {}", path, n < 0 ? reason(errno) : "it shrank while being read"));
    }
    done += static_cast<size_t>(n);
  }
  return text;
}

void checkReplaceable(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    throw UsageError(fmt::format("cannot write {}: it is there and is not a regular file", path));
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0) {
    throw UsageError(fmt::format("cannot write {}: its folder: {}", path, reason(errno)));
  }
}

AtomicFile::AtomicFile(const std::string& path)
    : path_(path), temporary_(fmt::format("{}.tmp.{}", path, ::getpid())) {
  checkReplaceable(path);
  file_ = FileDescriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file_.get() < 0) {
    throw LastingError(fmt::format("cannot create {}: {}", temporary_, reason(errno)));
  }
}

AtomicFile::~AtomicFile() {
  if (!committed_) {
    ::unlink(temporary_.c_str());
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) { writeAll(file_.get(), temporary_, bytes); }

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

void AtomicFile::commit() {
  if (::fsync(file_.get()) != 0) {
    throw LastingError(fmt::format("cannot write {}: {}", temporary_, reason(errno)));
  }
  file_.reset();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw LastingError(fmt::format("cannot rename {} to {}: {}", temporary_, path_, reason(errno)));
  }
  committed_ = true;
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
  }
  if (file_.get() < 0) {
    throw UsageError(fmt::format("cannot write {}: {}", path_, reason(errno)));
  }
}

void LineWriter::writeLine(std::string line) {
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

} // namespace gloo_bypass::trainer
