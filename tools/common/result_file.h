// Results that go where the command line says: whole or not at all, and a line that says which flag's file could not be
// written. `flag` is the flag that named `path`, such as "--json"; an empty `path` wants nothing.
#pragma once

#include <string>

#include "transport/base/whole_file.h"

namespace gloo_bypass {

// "FLAG: cannot write PATH: why", as a ProgramError.
[[noreturn]] void cannotWrite(const char* flag, const std::string& path, const std::string& why);

// Throws if `path` can surely not be written: found out before an hour of work.
void checkWritable(const char* flag, const std::string& path);

// A device or a FIFO stays what it is (writeWholeFile). Throws.
void writeResult(const char* flag, const std::string& path, const std::string& text,
                 Durability durability = Durability::kOrdinary);

// From here on a limit on files, or a reader who has gone, is an error of writing, as a full disk is, and not the end
// of the process.
void makeWriteSignalsErrors();

}  // namespace gloo_bypass
