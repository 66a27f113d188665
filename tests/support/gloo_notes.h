// A program's output without the notes that Gloo of 2025 prints about a healthy TCP connection: "[FILE:LINE] INFO Rank
// 0 is connected to 1...".
#pragma once

#include <sstream>
#include <string>

namespace gloo_bypass::test {

inline std::string withoutGloosNotes(const std::string& text) {
  std::istringstream lines(text);
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('[') || line.find("] INFO ") == std::string::npos) kept += line + '\n';
  }
  return kept;
}

}  // namespace gloo_bypass::test
