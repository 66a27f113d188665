// While it lives, this process may map only a mebibyte more memory.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace gloo_bypass::test {

// One at a time.
class NoMoreMemory {
 public:
  NoMoreMemory() {
    rlim_t pages = 0;
    EXPECT_TRUE(std::ifstream("/proc/self/statm") >> pages);
    EXPECT_EQ(::getrlimit(RLIMIT_AS, &before_), 0);
    const rlimit limit{pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (1 << 20), before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
  }
  ~NoMoreMemory() { EXPECT_EQ(::setrlimit(RLIMIT_AS, &before_), 0); }
  NoMoreMemory(const NoMoreMemory&) = delete;
  NoMoreMemory& operator=(const NoMoreMemory&) = delete;

 private:
  rlimit before_{};
};

}  // namespace gloo_bypass::test
