// Writes results to the files that the command line names: whole or not at all. An error names the flag. `flag` is the
// one that gave `path`, such as "--json"; with an empty `path` nothing is written.
#pragma once

#include <string>

#include "transport/base/whole_file.h"

namespace gloo_bypass {

// "FLAG: cannot write PATH: why", as a ProgramError.
[[noreturn]] void cannotWrite(const char* flag, const std::string& path, const std::string& why);

// Throws if `path` certainly cannot be written, before an hour of work.
void checkWritable(const char* flag, const std::string& path);

// A device or a FIFO stays what it is (writeWholeFile). Throws.
void writeResult(const char* flag, const std::string& path, const std::string& text,
                 Durability durability = Durability::kOrdinary);

// From here on a write beyond a file-size limit, or to a reader who has gone, fails as on a full disk, instead of
// ending the process.
void makeWriteSignalsErrors();

}  // namespace gloo_bypass
