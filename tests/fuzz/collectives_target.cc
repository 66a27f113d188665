// What other ranks publish and send for a group of our own collectives.
#include <algorithm>
#include <string>

#include "collectives/card.h"
#include "collectives/network/wire.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"
#include "transport/base/byte_order.h"
#include "transport/base/check.h"

namespace gloo_bypass::fuzz {
using namespace collectives;
namespace {

// What a rank reads of another one's words it may also print.
void describe(const DescriptionWords& words) {
  checkLine(textOfWords(words));
  const auto description = descriptionOf(words);
  if (description) GLOO_BYPASS_CHECK(descriptionOf(wordsOf(*description)).has_value());
}

void readHeader(std::span<const std::byte> bytes) {
  const auto header = decodeOperationHeader(bytes);
  if (!header) return;
  GLOO_BYPASS_CHECK(static_cast<int>(header->algorithm) < kAlgorithms);
  std::array<std::byte, OperationHeader::kBytes> again{};
  encode(*header, again.data());
  GLOO_BYPASS_CHECK(decodeOperationHeader(again) == header);
  describe(header->description);
}

void readControl(std::span<const std::byte> bytes) {
  const auto message = decodeControlMessage(bytes);
  if (!message) return;
  if (!message->text.empty()) checkLine(message->text);
  describe(message->description);
}

// A rank knows how many there are, and whose value it has asked for: here as the value says, so that the rest is
// reached.
void readAddresses(std::span<const std::byte> bytes) {
  if (bytes.size() < 16) return;
  const int rank = loadLittle<std::uint8_t>(&bytes[8]), size = loadLittle<std::uint8_t>(&bytes[12]);
  const auto addresses = decodeAddresses(bytes, rank, size);
  if (!addresses.ok()) return checkLine(addresses.error().message);
  GLOO_BYPASS_CHECK(addresses.value().size() == static_cast<std::size_t>(size));
  GLOO_BYPASS_CHECK(std::ranges::equal(encodeAddresses(rank, addresses.value()), bytes));
}

void readCard(std::span<const std::byte> bytes) {
  const auto card = decodeCard(bytes);
  if (!card || card->protocol != kProtocol) return;
  GLOO_BYPASS_CHECK(card->cores.cores > 0 && card->cores.hostRanks > 0 && card->cores.threads >= 0);
  const auto again = decodeCard(encode(*card));
  GLOO_BYPASS_CHECK(again && encode(*again) == encode(*card));
  const HostPlan plan = planFor(std::array{card->cores, RankCores{}});
  GLOO_BYPASS_CHECK(plan.lanes >= 1 && plan.lanes <= kMostThreads);
}

}  // namespace

void fuzzCollectives(std::span<const std::uint8_t> input) {
  const auto bytes = std::as_bytes(input);
  readHeader(bytes);
  readControl(bytes);
  readAddresses(bytes);
  readCard(bytes);
}

}  // namespace gloo_bypass::fuzz
