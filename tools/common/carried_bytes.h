// Whether bytes went over the transport that a program names, by the transports' own counters. A benchmark that
// compared TCP with itself would find no gain, and say so of another transport.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace gloo_bypass {

struct PayloadBytes {
  std::uint64_t sent = 0, received = 0;
  bool operator==(const PayloadBytes&) const = default;
};
// What this process has moved over each of this project's transports, by name.
using CarriedBytes = std::map<std::string, PayloadBytes>;

// Of what countersJson() and gloo_bypass_stats_json() write. Throws ProgramError for another text.
CarriedBytes carriedBytes(const std::string& countersJson);

// Throws ProgramError unless since `before` `transport` has moved at least `leastBytes`, and nothing has come over
// another one. With `isOurs` false, for Gloo's own transports, which have no such counters: unless nothing came over
// ours. Of the others what came counts: it has come when a collective returns, while a small send may lie in a queue
// until the next one, over another transport, has begun.
void requireCarriedBy(const std::string& transport, bool isOurs, const CarriedBytes& before, const CarriedBytes& now,
                      std::uint64_t leastBytes);

}  // namespace gloo_bypass
