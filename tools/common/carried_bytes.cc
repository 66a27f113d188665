#include "tools/common/carried_bytes.h"

#include <fmt/format.h>

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

void requireCarriedBy(const std::string& transport, bool isOurs, const CarriedBytes& before, const CarriedBytes& now,
                      std::uint64_t leastBytes) {
  for (const auto& [other, unused] : now) {
    const std::uint64_t came = since(before, now, other).received;
    if (other != transport && came != 0)
      throw ProgramError(fmt::format("{} was to carry all bytes, but {} came over {}", transport, came, other));
  }
  const PayloadBytes own = since(before, now, transport);
  if (isOurs && own.sent + own.received < leastBytes)
    throw ProgramError(
        fmt::format("{} was to carry {} bytes at least, and carried {}: others went over another transport", transport,
                    leastBytes, own.sent + own.received));
}

}  // namespace gloo_bypass
