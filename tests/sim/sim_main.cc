#include <gtest/gtest.h>

#include "tests/sim/settings.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  gloo_bypass::sim::readSettings(argc, argv);
  return RUN_ALL_TESTS();
}
