#include "programs/carried_bytes.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "programs/error.h"

namespace gloo_bypass {
namespace {

constexpr const char* kReceived = "payload_bytes_received";

std::uint64_t receivedIn(const nlohmann::json& counters) {
  const auto found = counters.is_object() ? counters.find(kReceived) : counters.end();
  if (found == counters.end() || !found->is_number_unsigned())
    throw ProgramError(
        fmt::format("the transports' counters have no {}: is the plug-in of another version?", kReceived));
  return found->get<std::uint64_t>();
}

std::uint64_t valueIn(const CarriedBytes& bytes, const std::string& transport) {
  const auto found = bytes.find(transport);
  return found == bytes.end() ? 0 : found->second;
}

}  // namespace

CarriedBytes carriedBytes(const std::string& countersJson) {
  const auto json = nlohmann::json::parse(countersJson, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw ProgramError("the transports' counters are no JSON object");
  if (const auto name = json.find("transport"); name != json.end() && name->is_string())
    return {{name->get<std::string>(), receivedIn(json)}};
  CarriedBytes bytes;
  for (const auto& [transport, counters] : json.items()) bytes.emplace(transport, receivedIn(counters));
  return bytes;
}

void requireCarriedBy(const std::string& transport, bool isOurs, const CarriedBytes& before, const CarriedBytes& now,
                      std::uint64_t leastBytes) {
  for (const auto& [other, bytes] : now) {
    const std::uint64_t came = bytes - valueIn(before, other);
    if (other != transport && came != 0)
      throw ProgramError(fmt::format("{} was to carry all bytes, but {} of them came over {}", transport, came, other));
  }
  const std::uint64_t came = valueIn(now, transport) - valueIn(before, transport);
  if (isOurs && came < leastBytes)
    throw ProgramError(
        fmt::format("{} was to carry {} bytes at least, but {} came over it: another transport has the others",
                    transport, leastBytes, came));
}

}  // namespace gloo_bypass
