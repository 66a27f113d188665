// Whether bytes went over the transport that a program names, by the transports' own counters. A benchmark that
// compared TCP with itself would find no gain, and say so of another transport.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace gloo_bypass {

// Payload bytes that this process has received over each of this project's transports, by name. Received ones: what a
// collective has waited for is counted when it returns, while a small send may still lie in a queue.
using CarriedBytes = std::map<std::string, std::uint64_t>;

// Of what countersJson() and gloo_bypass_stats_json() write. Throws ProgramError for another text.
CarriedBytes carriedBytes(const std::string& countersJson);

// Throws ProgramError unless since `before` at least `leastBytes` came over `transport`, and nothing over another one.
// With `isOurs` false, for Gloo's own transports, which have no such counters: unless nothing came over ours.
void requireCarriedBy(const std::string& transport, bool isOurs, const CarriedBytes& before, const CarriedBytes& now,
                      std::uint64_t leastBytes);

}  // namespace gloo_bypass
