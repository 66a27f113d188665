// The results of a run of ddp_train: its records, its digest, or the reason for a refusal.
#pragma once

#include <algorithm>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/gloo_notes.h"
#include "tests/support/program.h"
#include "tests/trainer/tiny_training.h"
#include "tools/common/error.h"

namespace gloo_bypass::trainer::testing {

// A command line's options.
using Flags = std::vector<std::string>;

inline Flags operator+(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// `event`: of that kind only.
inline std::vector<nlohmann::json> records(const std::string& text, const std::string& event = "") {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    auto record = nlohmann::json::parse(line);
    if (event.empty() || record["event"] == event) lines.push_back(std::move(record));
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

inline std::vector<nlohmann::json> stepsOf(const std::string& text) { return records(text, "step"); }

// The bytes that this rank sent in one of `steps`, which all send as many, except the first. Retransmissions of TCP on
// a busy machine count too, in some of them: the minimum is a step's own.
inline double bytesOfAStep(const std::vector<nlohmann::json>& steps) {
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 1; i < steps.size(); ++i) {
    least = std::min(least, steps[i]["bytes_sent"].get<double>());
  }
  return least;
}

// One line, naming what is wrong.
inline void expectRefused(const ProgramResult& finished, const std::string& reason) {
  EXPECT_GT(finished.shellStatus(), 0) << finished.out;
  EXPECT_NE(finished.err.find(reason), std::string::npos) << finished.err;
  const std::string said = test::withoutGloosNotes(finished.err);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << finished.err;
}

// Ranks with these flags are told apart when they meet, and each says why.
inline void expectRanksDisagree(const std::vector<Flags>& flags, const std::string& reason) {
  for (const auto& finished : trainApart(flags)) {
    expectRefused(finished, reason);
    EXPECT_EQ(finished.shellStatus(), kExitUsage);
  }
}

}  // namespace gloo_bypass::trainer::testing
