// What main() does in the programs of tools/ and trainer/.
#pragma once

#include <cstdio>
#include <exception>
#include <string>
#include <variant>

#include <fmt/format.h>

#include "tools/common/error.h"

namespace gloo_bypass {

// The program's exit status: that of `body`, given the Options that `parse` makes of the command line, as in
// std::variant<Options, std::string>; 0 once a text that `parse` gives instead is printed. An exception becomes a line
// on stderr, with the program's name before it.
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
