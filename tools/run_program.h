// What main() does in the programs of tools/.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <variant>

#include "tools/perf_error.h"

namespace gloo_bypass {

// The program's exit status: that of `body`, given what `parse` makes of the command line; 0 once a text that `parse` gives instead is printed.
// An exception becomes a line on stderr, with the program's name before it.
template <typename Options>
int runProgram(const char* name, std::variant<Options, std::string> (*parse)(int argc, const char* const* argv),
               int (*body)(const Options& options), int argc, const char* const* argv) {
  const auto complain = [name](const std::exception& error, int status) {
    fmt::print(stderr, "{}: {}\n", name, oneLine(error.what()));
    return status;
  };
  try {
    const std::variant<Options, std::string> parsed = parse(argc, argv);
    if (const auto* const options = std::get_if<Options>(&parsed)) return body(*options);
    fmt::print("{}", std::get<std::string>(parsed));
    return 0;
  } catch (const UsageError& error) {
    return complain(error, kExitUsage);
  } catch (const std::exception& error) {
    return complain(error, kExitFailure);
  }
}

}  // namespace gloo_bypass
