// What main() does in the programs of tools/ and trainer/.
#pragma once

#include <cstdio>
#include <exception>
#include <string>
#include <variant>

#include <fmt/format.h>

#include "tools/common/error.h"

namespace gloo_bypass {

// Runs `body` with the Options that `parse` reads from the command line, and returns its exit status. `parse` returns
// std::variant<Options, std::string>; a text (--help) is printed, and the status is 0. An exception becomes one line on
// stderr, after the program's name.
template <typename Parse, typename Body>
int runProgram(const char* name, const Parse& parse, const Body& body, int argc, const char* const* argv) {
  try {
    const auto parsed = parse(argc, argv);
    if (const auto* const options = std::get_if<0>(&parsed)) return body(*options);
    fmt::print("{}", std::get<std::string>(parsed));
    return 0;
  } catch (const std::exception& error) {
    complain(name, error.what());
    return exitStatusOf(error);
  }
}

}  // namespace gloo_bypass
