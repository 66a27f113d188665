// Words for the commonest failure of RDMA programs: memory that cannot be locked.
#pragma once

#include <cstddef>
#include <string>

namespace gloo_bypass::verbs {

// One line: what could not be registered and why; for ENOMEM with the value of RLIMIT_MEMLOCK, what is pinned already,
// and the remedy.
std::string registrationFailure(int error, std::size_t wantedBytes, std::size_t pinnedBytes, const char* what);

}  // namespace gloo_bypass::verbs
