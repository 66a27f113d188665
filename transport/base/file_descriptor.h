// Owns one file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

#include "transport/base/forked_child.h"

namespace gloo_bypass {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~FileDescriptor() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1) {
    if (fd_ >= 0) {
      forked_child::keep(fd_);
      ::close(fd_);
    }
    fd_ = fd;
  }
  // A forked child closes its copy: peers take the descriptor's end for the end of this process.
  FileDescriptor leftByForkedChildren() && {
    if (fd_ >= 0) forked_child::leave(fd_);
    return std::move(*this);
  }

 private:
  int fd_ = -1;
};

}  // namespace gloo_bypass
