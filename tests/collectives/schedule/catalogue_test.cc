#include "collectives/schedule/catalogue.h"

#include <gtest/gtest.h>

namespace gloo_bypass::collectives {
namespace {

TEST(Catalogue_Names, AreUniqueAndFound) {
  for (int i = 0; i < kAlgorithms; ++i) {
    EXPECT_EQ(algorithmNamed(nameOf(static_cast<Algorithm>(i))), static_cast<Algorithm>(i));
  }
  EXPECT_FALSE(algorithmNamed("rung"));
}

}  // namespace
}  // namespace gloo_bypass::collectives
