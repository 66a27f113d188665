// Whether the cryptographic libraries of this process work, before anything depends on them: a known answer of each.
// About a millisecond, once a process. Any thread.
#pragma once

#include "transport/base/status.h"

namespace gloo_bypass::security {

// The error is one line that names the library.
Status checkLibraries();

}  // namespace gloo_bypass::security
