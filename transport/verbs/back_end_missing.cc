// In a build without libibverbs' headers, in place of the folder's other sources.
#include "transport/verbs/back_end.h"

#include <string>

namespace gloo_bypass::verbs {
namespace {

// No std::string: the table of back-ends is read while the library is loaded, perhaps before this file's objects are
// made.
constexpr const char* kWhy = "libibverbs was missing or disabled when it was built";
constexpr const char* kPackage = "libibverbs-dev";

}  // namespace

Result<std::unique_ptr<PolledTransport>> makePolled(const TransportConfig&) {
  return Error{ErrorScope::kDevice, ErrorCode::kUnavailable,
               std::string("RDMA is not in this build (") + kWhy + "): install " + kPackage + " and build again"};
}

BackEnd backEnd() { return missingBackEnd("RDMA", kWhy, kPackage); }

}  // namespace gloo_bypass::verbs
