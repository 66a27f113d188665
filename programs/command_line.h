// The command line of a program, once CLI11 knows its options.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "programs/error.h"

namespace gloo_bypass {

// Fills what the options of `app` are bound to. Text: what --help or --version ask for, and nothing else is to be done.
// Throws UsageError, one line.
inline std::optional<std::string> readCommandLine(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
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
