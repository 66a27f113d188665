// The plug-in for one PyTorch registers its transports when it is loaded; see plugin/torch/preload.cc.
#include "plugin/torch/gloo_bypass.h"
#include "plugin/torch/registration.h"
#include "transport/base/c_text.h"

namespace {

[[maybe_unused]] const bool registered = (gloo_bypass::registerTransports(), true);

}  // namespace

GLOO_BYPASS_VISIBLE int gloo_bypass_register(char* buffer, size_t capacity) {
  return gloo_bypass::answerInC(buffer, capacity, gloo_bypass::registerTransports);
}
