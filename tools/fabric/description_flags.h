// The sections of a fabric's description as flags of a program: --host, --edge and so on, each of which may be
// repeated.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/fabric/core/description.h"

namespace gloo_bypass::fabric {

// Each time that the flag stands there its text is one more value, whatever characters are in it.
inline CLI::Option* oneValueEachTime(CLI::Option* option) {
  return option->expected(1)->take_all()->delimiter('\0')->allow_extra_args(false);
}

// Outlives the parsing of the command line, and does not move until then.
class DescriptionFlags {
 public:
  // All sections but `except`.
  explicit DescriptionFlags(std::string_view except = {}) {
    for (const std::string& name : sectionNames()) {
      if (name != except) sections_.push_back({name, {}});
    }
  }
  DescriptionFlags(const DescriptionFlags&) = delete;
  DescriptionFlags& operator=(const DescriptionFlags&) = delete;

  void addTo(CLI::App& app) {
    for (auto& [name, values] : sections_) {
      oneValueEachTime(app.add_option("--" + name, values, "of the description; may be repeated"));
    }
  }
  // What was given, section by section.
  std::vector<DescriptionFlag> given() const {
    std::vector<DescriptionFlag> flags;
    for (const auto& [name, values] : sections_) {
      for (const std::string& value : values) flags.push_back({name, value});
    }
    return flags;
  }

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> sections_;
};

}  // namespace gloo_bypass::fabric
