// Files of tensors that two runs wrote.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "trainer/safetensors.h"

namespace gloo_bypass::trainer::testing {

// The largest difference between two files' tensors of fp64.
inline double largestDifference(const std::string& path, const std::string& otherPath) {
  const SafetensorsFile file(path), other(otherPath);
  EXPECT_EQ(file.tensors().size(), other.tensors().size());
  double largest = 0;
  for (const auto& [name, view] : file.tensors()) {
    const auto others = other.tensors().at(name).bytes;
    EXPECT_EQ(view.dtype, "F64");
    EXPECT_EQ(view.bytes.size(), others.size());
    for (size_t i = 0; i + sizeof(double) <= others.size(); i += sizeof(double)) {
      double one = 0, two = 0;
      std::memcpy(&one, view.bytes.data() + i, sizeof(double));
      std::memcpy(&two, others.data() + i, sizeof(double));
      largest = std::max(largest, std::abs(one - two));
    }
  }
  return largest;
}

} // namespace gloo_bypass::trainer::testing
