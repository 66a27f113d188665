// The back-ends again, with devices that connect pairs at first use. Gloo's own lazy TCP device is the reference, if
// this Gloo has one.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "tests/conformance/backend.h"

namespace gloo_bypass::test {

struct OnDemandBackend : Backend {
  // How many channels its devices have opened so far. Null: unknown (the reference).
  std::shared_ptr<std::atomic<int>> channels;
};

inline void PrintTo(const OnDemandBackend& backend, std::ostream* out) { *out << backend.name; }

std::vector<OnDemandBackend> onDemandBackends();

}  // namespace gloo_bypass::test
