// Registers our transports among PyTorch's Gloo devices, so that GLOO_DEVICE_TRANSPORT can choose them.
//
// A key that cannot work (not in this build, or unknown) gets a creator that throws one clear line: PyTorch's own line
// names neither the key nor the known ones, and nothing may ever fall back to TCP silently.
//
// Thread: the one that loads the plug-in.
#pragma once

#include <string>

namespace gloo_bypass {

// Registers them; later calls do nothing. Returns an empty text, or one line if another copy of the plug-in is
// registered already: then this copy is not used.
std::string registerTransports();

}  // namespace gloo_bypass
