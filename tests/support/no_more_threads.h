// While it lives, this process cannot start threads, as on a machine without memory for them.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <limits>

#include <gtest/gtest.h>

namespace gloo_bypass::test {

// One at a time. It requests a stack that no address space holds.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    EXPECT_EQ(0, pthread_getattr_default_np(&before_));
    pthread_attr_t greedy;
    EXPECT_EQ(0, pthread_attr_init(&greedy));
    EXPECT_EQ(0, pthread_attr_setstacksize(&greedy, std::numeric_limits<std::size_t>::max() / 4));
    EXPECT_EQ(0, pthread_setattr_default_np(&greedy));
    EXPECT_EQ(0, pthread_attr_destroy(&greedy));
  }
  ~NoMoreThreads() {
    EXPECT_EQ(0, pthread_setattr_default_np(&before_));
    EXPECT_EQ(0, pthread_attr_destroy(&before_));
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

}  // namespace gloo_bypass::test
