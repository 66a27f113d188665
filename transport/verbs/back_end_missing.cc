// Replaces the folder's other sources in a build without libibverbs' headers.
#include "transport/verbs/back_end.h"

#include <string>

#include "transport/verbs/settings.h"

namespace gloo_bypass::verbs {
namespace {

// Not a std::string: the table of back-ends is read while the library is loaded, perhaps before this file's objects
// exist.
constexpr const char* kWhy = "libibverbs was missing or disabled when it was built";
constexpr const char* kPackage = "libibverbs-dev";

}  // namespace

Result<std::unique_ptr<PolledTransport>> makePolled(const TransportConfig&) {
  return Error{ErrorScope::kDevice, ErrorCode::kUnavailable,
               std::string("RDMA is not in this build (") + kWhy + "): install " + kPackage + " and build again"};
}

BackEnd backEnd() { return {.name = "RDMA", .missing = kWhy, .package = kPackage, .settings = settings}; }

}  // namespace gloo_bypass::verbs
