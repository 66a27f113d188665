// Memory to share: a file that can neither shrink nor grow, so that no peer can end this process with SIGBUS.
#pragma once

#include <cstddef>

#include "transport/base/file_descriptor.h"
#include "transport/base/status.h"

namespace gloo_bypass {

// Zero-filled. Errors: kExhausted, or kUnavailable if the system refuses it; one line that names the call.
Result<FileDescriptor> makeSealedMemory(const char* name, std::size_t bytes);

}  // namespace gloo_bypass
