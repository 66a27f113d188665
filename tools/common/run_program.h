// What main() does in the programs of tools/ and trainer/.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <variant>

#include <fmt/format.h>

#include "tools/common/error.h"

namespace gloo_bypass {

// Throws ProgramError if something that was printed could not be written.
inline void flushStandardOutput() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw ProgramError(fmt::format("standard output cannot be written: {}", std::strerror(errno)));
}

// Runs `body` with the Options that `parse` reads from the command line, and returns its exit status. `parse` returns
// std::variant<Options, std::string>; a text (--help) is printed, and the status is 0. An exception becomes one line on
// stderr, after the program's name; so does standard output that could not be written.
template <typename Parse, typename Body>
int runProgram(const char* name, const Parse& parse, const Body& body, int argc, const char* const* argv) {
  try {
    const auto parsed = parse(argc, argv);
    int status = 0;
    if (const auto* const options = std::get_if<0>(&parsed)) {
      status = body(*options);
    } else {
      fmt::print("{}", std::get<std::string>(parsed));
    }
    if (status == 0) flushStandardOutput();
    return status;
  } catch (const std::exception& error) {
    complain(name, error.what());
    return exitStatusOf(error);
  }
}

}  // namespace gloo_bypass
