// The transports under test: the suite runs the same tests over Gloo's own TCP transport, the reference, and over the
// adapter with every back-end. Ranks are threads of one process; each makes its own device.
#pragma once

#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gtest/gtest.h>

#include "tests/support/in_threads.h"

namespace gloo_bypass::test {

struct Backend {
  std::string name;
  // Called once or more often a rank: a device is a light handle.
  std::function<std::shared_ptr<::gloo::transport::Device>()> makeDevice;
  // Gloo's own transport. It has accidental behaviour that the others need not have, and the other way round.
  bool reference = false;
  // A large send completes once the peer has posted its receive, not before.
  bool largeSendWaits = true;
};

// All in this build.
std::vector<Backend> backends();
inline std::string nameOf(const ::testing::TestParamInfo<Backend>& info) { return info.param.name; }

using ContextPtr = std::shared_ptr<::gloo::Context>;
using Milliseconds = std::chrono::milliseconds;

// Long enough for a loaded machine, short against the suite's time limit.
inline constexpr Milliseconds kPatience{20000};

struct RankContext {
  int rank = 0;
  ContextPtr context;
};

// Makes a full mesh of `size` ranks, each in its own thread, and calls `body` there. An exception from `body` fails the
// test. Returns when all threads have ended.
void spawn(const Backend& backend, int size, const std::function<void(ContextPtr)>& body,
           Milliseconds timeout = kPatience);

// The same, but connected on return; for tests that drive all ranks from one thread, or keep them.
std::vector<ContextPtr> connectedContexts(const Backend& backend, int size, Milliseconds timeout = kPatience);

// Transport contexts without Gloo's top level: pairs are made and connected here, with access to each step.
struct Mesh {
  std::vector<std::shared_ptr<::gloo::transport::Device>> devices;
  std::vector<std::shared_ptr<::gloo::transport::Context>> contexts;
};
Mesh connectedMesh(const Backend& backend, int size, Milliseconds timeout = kPatience);

class Conformance : public ::testing::TestWithParam<Backend> {
 protected:
  void run(int size, const std::function<void(ContextPtr)>& body, Milliseconds timeout = kPatience) {
    spawn(GetParam(), size, body, timeout);
  }
};

// The exception's text, or "" if `f` returns; any exception other than Gloo's IoException fails the test.
std::string ioExceptionOf(const std::function<void()>& f);

// A value that depends on rank, place and round, so that a misplaced byte shows.
template <typename T>
T sample(int rank, std::size_t index, int round = 0) {
  return static_cast<T>((static_cast<std::size_t>(rank) * 31 + index * 7 + static_cast<std::size_t>(round) * 13) % 97);
}

}  // namespace gloo_bypass::test

#define GLOO_BYPASS_CONFORMANCE(Fixture)                                                               \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Fixture);                                              \
  INSTANTIATE_TEST_SUITE_P(Conformance, Fixture, ::testing::ValuesIn(::gloo_bypass::test::backends()), \
                           ::gloo_bypass::test::nameOf)
