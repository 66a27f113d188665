#include "tools/common/carried_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/common/error.h"

namespace gloo_bypass {
namespace {

std::uint64_t valueOf(const nlohmann::json& counters, const char* name) {
  const auto found = counters.is_object() ? counters.find(name) : counters.end();
  if (found == counters.end() || !found->is_number_unsigned())
    throw ProgramError(fmt::format("the transports' counters have no {}: is the plug-in of another version?", name));
  return found->get<std::uint64_t>();
}

PayloadBytes bytesOf(const nlohmann::json& counters) {
  return {valueOf(counters, "payload_bytes_sent"), valueOf(counters, "payload_bytes_received")};
}

PayloadBytes since(CarriedBytes before, CarriedBytes now, const std::string& transport) {
  const PayloadBytes first = before[transport], last = now[transport];
  return {last.sent - first.sent, last.received - first.received};
}

}  // namespace

CarriedBytes carriedBytes(const std::string& countersJson) {
  const auto json = nlohmann::json::parse(countersJson, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw ProgramError("the transports' counters are no JSON object");
  if (const auto name = json.find("transport"); name != json.end() && name->is_string())
    return {{name->get<std::string>(), bytesOf(json)}};
  CarriedBytes bytes;
  for (const auto& [transport, counters] : json.items()) bytes.emplace(transport, bytesOf(counters));
  return bytes;
}

void requireCarriedBy(const std::vector<std::string>& transports, bool isOurs, const CarriedBytes& before,
                      const CarriedBytes& now, std::uint64_t leastBytes) {
  std::string names;
  for (const std::string& transport : transports) names += (names.empty() ? "" : " and ") + transport;
  for (const auto& [other, unused] : now) {
    const std::uint64_t came = since(before, now, other).received;
    if (came != 0 && std::find(transports.begin(), transports.end(), other) == transports.end())
      throw ProgramError(fmt::format("{} was to carry all bytes, but {} came over {}", names, came, other));
  }
  std::uint64_t own = 0;
  for (const std::string& transport : transports) {
    const PayloadBytes moved = since(before, now, transport);
    own += moved.sent + moved.received;
  }
  if (isOurs && own < leastBytes)
    throw ProgramError(
        fmt::format("{} was to carry {} bytes at least, and carried {}: others went over another transport", names,
                    leastBytes, own));
}

}  // namespace gloo_bypass
