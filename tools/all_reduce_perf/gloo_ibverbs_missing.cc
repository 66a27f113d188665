// In place of gloo_ibverbs.cc where libgloo or this build has no verbs.
#include "tools/all_reduce_perf/gloo_ibverbs.h"
#include "tools/common/error.h"

namespace gloo_bypass {

std::string glooIbverbsProblem() {
  return "GLOO_IBVERBS is not in this program: its libgloo was built without ibverbs, or libibverbs-dev was missing";
}

std::shared_ptr<::gloo::transport::Device> makeGlooIbverbsDevice(const GlooPlace&) {
  throw ProgramError(glooIbverbsProblem());
}

}  // namespace gloo_bypass
