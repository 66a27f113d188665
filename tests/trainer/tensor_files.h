// Files of tensors that two runs wrote.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainer/files/safetensors.h"

namespace gloo_bypass::trainer::testing {

inline std::vector<std::byte> bytesOf(const SafetensorsFile& file, const StoredTensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes);
  file.read(tensor, 0, bytes);
  return bytes;
}

// The largest difference between two files' tensors of fp64.
inline double largestDifference(const std::string& path, const std::string& otherPath) {
  const SafetensorsFile file(path), other(otherPath);
  EXPECT_EQ(file.tensors().size(), other.tensors().size());
  double largest = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    const auto bytes = bytesOf(file, tensor), others = bytesOf(other, other.tensors().at(name));
    EXPECT_EQ(tensor.dtype, "F64");
    EXPECT_EQ(bytes.size(), others.size());
    for (size_t i = 0; i + sizeof(double) <= others.size(); i += sizeof(double)) {
      double one = 0, two = 0;
      std::memcpy(&one, bytes.data() + i, sizeof(double));
      std::memcpy(&two, others.data() + i, sizeof(double));
      largest = std::max(largest, std::abs(one - two));
    }
  }
  return largest;
}

}  // namespace gloo_bypass::trainer::testing
