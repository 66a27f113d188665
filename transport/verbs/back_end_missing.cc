// In a build without libibverbs' headers, in place of the folder's other sources.
#include "transport/verbs/back_end.h"

#include <string>

namespace gloo_bypass::verbs {
namespace {

const std::string kWhy = "libibverbs was missing or disabled when it was built";
const std::string kPackage = "libibverbs-dev";

}  // namespace

Result<std::unique_ptr<PolledTransport>> makePolled(const TransportConfig&) {
  return Error{ErrorScope::kDevice, ErrorCode::kUnavailable,
               "RDMA is not in this build (" + kWhy + "): install " + kPackage + " and build again"};
}

BackEnd backEnd() { return missingBackEnd("RDMA", kWhy, kPackage); }

}  // namespace gloo_bypass::verbs
