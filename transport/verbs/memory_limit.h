// The error text for the commonest failure of RDMA programs: memory that cannot be locked.
#pragma once

#include <cstddef>
#include <string>

namespace gloo_bypass::verbs {

// One line: what could not be registered and why. For ENOMEM it adds RLIMIT_MEMLOCK, the amount already pinned, and the
// remedy.
std::string registrationFailure(int error, std::size_t wantedBytes, std::size_t pinnedBytes, const char* what);

// A sentence with the limit and the remedy, to follow an error of the adapter's queues, whose memory drivers lock.
// Empty for another error than ENOMEM, and without a limit.
std::string lockedMemoryHint(int error);

}  // namespace gloo_bypass::verbs
