// What a script allows: which connections may end before their traffic does, and how long everything may take. Pure
// arithmetic over the script.
#pragma once

#include <cstddef>

#include "tools/simulation/worlds/script.h"

namespace gloo_bypass::sim {

// The settings of two ranks do not fit together: they must not connect.
bool mustNotConnect(const Script& script, int a, int b);
// The script has a reason for which their sessions may end: a rank ends, or they may not hear each other for too long.
bool mayEnd(const Script& script, int a, int b);
// When the last fault is over.
Duration faultsEndAt(const Script& script);
// When the last message is sent or received, or the last rank starts.
Duration trafficEndsAt(const Script& script);
// Once faults are over: how long the traffic of two ranks may take from then, or the end of their sessions.
Duration recoveryLimit(const Script& script, int a, int b);
// The bound on the memory of a session.
std::size_t memoryLimit(const Script& script, int rank);

}  // namespace gloo_bypass::sim
