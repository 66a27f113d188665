// The command line of a program, once CLI11 knows its options.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <optional>
#include <string>

#include "tools/common/error.h"

namespace gloo_bypass {

// CLI::Range accepts NaN: both comparisons are false.
inline void refuseNan(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_type_name().find("FLOAT") == std::string::npos) continue;
    for (const std::string& text : option->results()) {
      double value = 0;
      if (CLI::detail::lexical_cast(text, value) && std::isnan(value)) {
        throw UsageError(fmt::format("{} {}: no number (see --help)", option->get_name(), text));
      }
    }
  }
}

// Fills the variables that the options of `app` are bound to. Returns the text of --help or --version if the user asked
// for it: print it and do nothing else. Throws UsageError, one line.
inline std::optional<std::string> readCommandLine(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
    refuseNan(app);
    return {};
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::CallForVersion&) {
    return app.version() + "\n";
  } catch (const CLI::ParseError& error) {
    throw UsageError(oneLine(error.what()) + " (see --help)");
  }
}

}  // namespace gloo_bypass
