// What a run of ddp_train said: its records, its digest, or why it refused.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/gloo_notes.h"
#include "tests/support/program.h"

namespace gloo_bypass::trainer::testing {

inline std::vector<nlohmann::json> records(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

inline nlohmann::json summaryOf(const ProgramResult& finished) {
  EXPECT_EQ(finished.shellStatus(), 0) << finished.err;
  const auto lines = records(finished.out);
  EXPECT_TRUE(!lines.empty() && lines.back()["event"] == "summary") << finished.out;
  return lines.empty() ? nlohmann::json() : lines.back();
}

inline std::string digestOf(const ProgramResult& finished) { return summaryOf(finished).value("sha256", "none"); }

inline std::vector<nlohmann::json> stepsOf(const std::string& text) {
  auto lines = records(text);
  std::erase_if(lines, [](const nlohmann::json& line) { return line["event"] != "step"; });
  return lines;
}

// One line, naming what is wrong.
inline void expectRefused(const ProgramResult& finished, const std::string& reason) {
  EXPECT_GT(finished.shellStatus(), 0) << finished.out;
  EXPECT_NE(finished.err.find(reason), std::string::npos) << finished.err;
  const std::string said = test::withoutGloosNotes(finished.err);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << finished.err;
}

} // namespace gloo_bypass::trainer::testing
