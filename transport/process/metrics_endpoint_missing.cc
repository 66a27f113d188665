// For builds without libmicrohttpd's headers.
#include "transport/process/metrics_endpoint.h"

namespace gloo_bypass {

Result<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::open(const MetricsTarget&, std::function<std::string()>) {
  return Error{ErrorScope::kDevice, ErrorCode::kUnavailable,
               "the HTTP endpoint is not in this build (libmicrohttpd-dev was missing or disabled when it was built): "
               "use file:/PATH"};
}

}  // namespace gloo_bypass
