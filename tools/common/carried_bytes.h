// Checks by the transports' own counters that bytes went over the transport that a program names. A benchmark that
// compared TCP with itself would find no gain, and report that of another transport.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gloo_bypass {

struct PayloadBytes {
  std::uint64_t sent = 0, received = 0;
  bool operator==(const PayloadBytes&) const = default;
};
// Bytes that this process has moved over each of this project's transports, by name.
using CarriedBytes = std::map<std::string, PayloadBytes>;

// Reads the text of countersJson() or gloo_bypass_stats_json(). Throws ProgramError for any other text.
CarriedBytes carriedBytes(const std::string& countersJson);

// Throws ProgramError unless `transports` together have moved at least `leastBytes` since `before`, and no other
// transport of ours has received any. `isOurs` false: they are Gloo's own and have no counters, so only the others are
// checked.
// Their sent bytes do not count: when a collective returns its data has arrived, but a small send may still lie in a
// queue when the next collective begins over another transport.
void requireCarriedBy(const std::vector<std::string>& transports, bool isOurs, const CarriedBytes& before,
                      const CarriedBytes& now, std::uint64_t leastBytes);

}  // namespace gloo_bypass
