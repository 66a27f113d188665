// In place of gloo_ibverbs.cc where libgloo or this build has no verbs.
#include "programs/error.h"
#include "tools/gloo_ibverbs.h"

namespace gloo_bypass {

std::string glooIbverbsProblem() {
  return "GLOO_IBVERBS is not in this program: its libgloo was built without ibverbs, or libibverbs-dev was missing";
}

std::shared_ptr<::gloo::transport::Device> makeGlooIbverbsDevice(const GlooPlace&) {
  throw ProgramError(glooIbverbsProblem());
}

}  // namespace gloo_bypass
