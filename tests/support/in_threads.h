// Ranks of a test as threads of one process.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace gloo_bypass::test {

// Runs `body(index)` in `count` threads, and waits for all; an exception fails the test.
inline void inThreads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&body, i] {
      try {
        body(i);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "thread " << i << ": " << e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace gloo_bypass::test
