// What programs report of the machine and of their own process. Reads /proc; any thread.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace gloo_bypass {

std::string hostName();
std::string processorName();  // its model
// {"hostname", "cpu", "cores", "kernel"}; what cannot be read is "unknown" or 0.
nlohmann::json describeMachine();

// User and system time of all threads of this process so far.
double processCpuSeconds();

struct MemoryUse {
  std::uint64_t rssBytes = 0;
  std::uint64_t pssBytes = 0;  // shared pages divided among their users; 0 where the kernel does not tell
};
// Gives freed heap memory back to the kernel first, so that what remains is in use.
MemoryUse processMemory();

}  // namespace gloo_bypass
