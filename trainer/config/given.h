// Which of several options is on the command line: a message names what the user gave, not what could have been given
// as well.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

namespace gloo_bypass::trainer {

// The name of the first one that is given; empty: none is.
inline std::string firstGiven(std::initializer_list<std::pair<bool, const char*>> options) {
  for (const auto& [isGiven, name] : options) {
    if (isGiven) {
      return name;
    }
  }
  return {};
}

}  // namespace gloo_bypass::trainer
