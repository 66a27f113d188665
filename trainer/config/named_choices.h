// Options that are one of a few names: a table of them is what --help lists, what is read, and what records say.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace gloo_bypass::trainer {

template <typename Value>
using NamedChoices = std::map<std::string, Value>;

template <typename Value>
std::vector<std::string> namesOf(const NamedChoices<Value>& choices) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) {
    names.push_back(name);
  }
  return names;
}

// `wanted` must be one of them.
template <typename Value>
const std::string& nameOf(const NamedChoices<Value>& choices, Value wanted) {
  return std::find_if(choices.begin(), choices.end(), [&](const auto& choice) { return choice.second == wanted; })
      ->first;
}

}  // namespace gloo_bypass::trainer
