// While it lives, this process may open only `more` new descriptors.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "transport/base/file_descriptor.h"

namespace gloo_bypass::test {

// One at a time.
class NoMoreDescriptors {
 public:
  explicit NoMoreDescriptors(rlim_t more = 0) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const FileDescriptor next(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
    const rlimit limit{static_cast<rlim_t>(next.get()) + more, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~NoMoreDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  NoMoreDescriptors(const NoMoreDescriptors&) = delete;
  NoMoreDescriptors& operator=(const NoMoreDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace gloo_bypass::test
