// Gloo's own transport over verbs, to compare RDMA with.
#pragma once

#include <memory>
#include <string>

#include <gloo/transport/device.h>

#include "transport/process/gloo_device.h"

namespace gloo_bypass {

// One line if it is not in this build; empty if it is.
std::string glooIbverbsProblem();
// On the device, port and GID that the RDMA transport would take first. Throws ProgramError, or what Gloo throws.
std::shared_ptr<::gloo::transport::Device> makeGlooIbverbsDevice(const GlooPlace& place);

}  // namespace gloo_bypass
