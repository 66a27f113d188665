#include "tools/common/free_port.h"

#include <fstream>

#include <gtest/gtest.h>

namespace gloo_bypass {
namespace {

TEST(FreePort, RangeThatTheKernelGivesAway_IsAvoided) {
  int low = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low;
  if (low < 2048) GTEST_SKIP() << "this machine gives away nearly all ports";
  for (int i = 0; i < 20; ++i) {
    const int port = freePort();
    EXPECT_GE(port, 1024);
    EXPECT_LT(port, low);
  }
}

}  // namespace
}  // namespace gloo_bypass
