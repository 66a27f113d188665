// Our transports in PyTorch's registry of Gloo devices, where GLOO_DEVICE_TRANSPORT then chooses among them and
// PyTorch's own.
//
// A key that cannot work (not in this build, or unknown) gets a creator that throws one clear line: PyTorch's own line
// names neither the key nor what is known, and nothing may ever fall back to TCP silently.
//
// Thread: the one that loads the plug-in.
#pragma once

#include <string>

namespace gloo_bypass {

// Registers them; later calls do nothing. Returns an empty text, or one line if another copy of the plug-in has
// registered its own: then this copy's are not used.
std::string registerTransports();

}  // namespace gloo_bypass
