// The plug-in in the wheel, for PyTorch from pip: registers on request, once it has verified that it fits.
#include <exception>
#include <string>

#include "plugin/torch/gloo_bypass.h"
#include "plugin/torch/registration.h"
#include "plugin/wheel/verification.h"
#include "transport/base/c_text.h"

GLOO_BYPASS_VISIBLE int gloo_bypass_register(char* buffer, size_t capacity) {
  return gloo_bypass::answerInC(buffer, capacity, [] {
    try {
      std::string misfit = gloo_bypass::whatDoesNotFit();
      return misfit.empty() ? gloo_bypass::registerTransports() : misfit;
    } catch (const std::exception& error) {  // PyTorch's own code runs in both
      return std::string(error.what());
    }
  });
}
