#include "collectives/card.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace gloo_bypass::collectives {
namespace {

using Json = nlohmann::json;

constexpr int kMostOnHost = 1 << 16;

// The nearest one in the range. Throws for what is no whole number.
int wholeNumber(const Json& json, int least, int most) {
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > static_cast<std::uint64_t>(most)) return most;
  if (!json.is_number_integer()) throw std::invalid_argument("no whole number");
  return static_cast<int>(std::clamp<std::int64_t>(json.get<std::int64_t>(), least, most));
}

}  // namespace

std::vector<std::byte> encode(const Card& card) {
  const std::string text = Json{
      {"protocol", card.protocol},
      {"cores", card.cores.cores},
      {"core_set", card.cores.coreSet},
      {"threads", card.cores.threads},
      {"transport", card.transport},
      {"host", card.host},
      {"host_ranks", card.cores.hostRanks},
      {"place", card.place},
      {"choices", card.choices},
      {"secret", card.secret}}.dump();
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::optional<Card> decodeCard(std::span<const std::byte> bytes) {
  if (bytes.size() > Card::kMostBytes) return std::nullopt;
  try {
    const auto* text = reinterpret_cast<const char*>(bytes.data());
    const Json json = Json::parse(text, text + bytes.size());
    Card card;
    card.protocol = wholeNumber(json.at("protocol"), 0, INT32_MAX);
    if (card.protocol != kProtocol) return card;
    card.cores.cores = wholeNumber(json.at("cores"), 1, kMostOnHost);
    card.cores.coreSet = json.at("core_set").get<std::vector<std::uint64_t>>();
    card.cores.threads = wholeNumber(json.at("threads"), 0, kMostThreads);
    card.cores.hostRanks = wholeNumber(json.at("host_ranks"), 1, kMostOnHost);
    card.transport = json.at("transport").get<std::string>();
    card.host = json.at("host").get<std::string>();
    card.place = json.at("place").get<std::string>();
    card.choices = json.at("choices").get<std::string>();
    card.secret = json.at("secret").get<MeetingSecret>();
    return card;
  } catch (const Json::exception&) {
    return std::nullopt;
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

}  // namespace gloo_bypass::collectives
