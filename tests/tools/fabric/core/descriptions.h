// Descriptions from texts, for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tools/fabric/core/description.h"

namespace gloo_bypass::fabric {

inline Result<Description> parsed(std::string text, std::vector<DescriptionFlag> flags = {}) {
  return parseDescription({std::move(text), "f.toml", std::move(flags)});
}

// The message of a description that must be refused.
inline std::string faultOf(std::string text, std::vector<DescriptionFlag> flags = {}) {
  const Result<Description> result = parsed(std::move(text), std::move(flags));
  if (result.ok()) return "(no fault)";
  EXPECT_EQ(result.error().code, ErrorCode::kConfiguration);
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  return result.error().message;
}

// One that must be accepted.
inline Description good(std::string text, std::vector<DescriptionFlag> flags = {}) {
  Result<Description> result = parsed(std::move(text), std::move(flags));
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? std::move(result).value() : Description{};
}

}  // namespace gloo_bypass::fabric
