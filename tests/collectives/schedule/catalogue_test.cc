#include "collectives/schedule/catalogue.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gloo_bypass::collectives {
namespace {

TEST(Catalogue_Rows, EveryAlgorithmHasOne) {
  for (int i = 0; i < kAlgorithms; ++i) {
    EXPECT_TRUE(std::ranges::any_of(algorithms(), [&](const AlgorithmRow& row) {
      return row.algorithm == static_cast<Algorithm>(i);
    })) << nameOf(static_cast<Algorithm>(i));
  }
}

TEST(Catalogue_Names, AreUniqueAndFound) {
  for (int i = 0; i < kAlgorithms; ++i) {
    EXPECT_EQ(algorithmNamed(nameOf(static_cast<Algorithm>(i))), static_cast<Algorithm>(i));
  }
  EXPECT_FALSE(algorithmNamed("rung"));
}

}  // namespace
}  // namespace gloo_bypass::collectives
