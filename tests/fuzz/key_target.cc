// Key files, and the offers of keys that ranks read from the rendezvous store.
#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/script.h"
#include "transport/base/check.h"
#include "transport/security/hkdf.h"
#include "transport/security/key_agreement.h"
#include "transport/sessions/credentials.h"

namespace gloo_bypass::fuzz {
using namespace security;
namespace {

constexpr std::size_t kMostEdits = 8;

Secret secretOf(std::uint8_t fill) {
  Secret secret;
  std::ranges::fill(secret.writable(), static_cast<std::byte>(fill));
  return secret;
}

// What a key file of these bytes must give: written from the file's description, not from its parser.
std::optional<std::string> digitsOf(std::string text) {
  if (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.size() != 2 * kSecretBytes) return {};
  if (!std::ranges::all_of(text, [](unsigned char each) { return std::isxdigit(each) != 0; })) return {};
  std::ranges::transform(text, text.begin(), [](unsigned char each) { return static_cast<char>(std::tolower(each)); });
  return text;
}

std::string hexOf(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte each : bytes) {
    for (const int shift : {4, 0}) text.push_back("0123456789abcdef"[std::to_integer<unsigned>(each) >> shift & 15]);
  }
  return text;
}

std::shared_ptr<const Credentials> credentials(bool withKey) {
  auto made = std::make_shared<Credentials>();
  made->job = "job";
  if (withKey) made->preSharedKey = secretOf(7);
  return made;
}

void append(std::vector<std::byte>& to, std::span<const std::byte> part) {
  for (std::size_t i = 0; i < 8; ++i) to.push_back(static_cast<std::byte>(part.size() >> (8 * i) & 0xff));
  to.insert(to.end(), part.begin(), part.end());
}
void append(std::vector<std::byte>& to, std::uint64_t number) {
  std::array<std::byte, 8> octets;
  for (std::size_t i = 0; i < 8; ++i) octets[i] = static_cast<std::byte>(number >> (8 * i) & 0xff);
  append(to, octets);
}

// Proves an offer again with the key that both ranks have, as a peer could that makes others (key_agreement.h).
void prove(const Party& peer, std::vector<std::byte>& offer, bool withKey) {
  if (offer.size() < kOfferBytes) return;
  std::vector<std::byte> proven;
  append(proven, std::as_bytes(std::span(std::string_view("job"))));
  append(proven, 1);
  append(proven, 0);
  append(proven, peer.address);
  append(proven, std::span(offer).first(kOfferBytes - kProofBytes));
  const Secret early = extract({}, withKey ? secretOf(7).bytes() : Secret().bytes());
  const Secret proof = hmacSha256(deriveSecret(early, "gb address", {}).bytes(), {proven});
  std::copy_n(proof.bytes().begin(), kProofBytes, offer.begin() + (kOfferBytes - kProofBytes));
}

std::vector<std::byte> editedBytes(std::span<const std::byte> bytes, Script& script) {
  const auto* const octets = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const auto made = edited({octets, octets + bytes.size()}, script, kMostEdits);
  const auto raw = std::as_bytes(std::span(made));
  return {raw.begin(), raw.end()};
}

}  // namespace

void fuzzKeyFile(std::span<const std::uint8_t> input) {
  static MemoryFile memory;
  memory.hold(input);
  const auto key = readKeyFile(memory.path());
  const auto digits = digitsOf({input.begin(), input.end()});
  GLOO_BYPASS_CHECK(key.ok() == digits.has_value());
  if (key.ok()) {
    GLOO_BYPASS_CHECK(hexOf(key.value().bytes()) == *digits);
    return;
  }
  checkLine(key.error().message);
  // Whatever it holds, nothing of it is shown.
  const auto again = (memory.hold(octetsOf("x")), readKeyFile(memory.path()));
  GLOO_BYPASS_CHECK(again.error().message == key.error().message);
}

void fuzzOffer(std::span<const std::uint8_t> input) {
  Script script(input);
  const std::uint8_t choice = script.byte();
  const bool withKey = (choice & 1) != 0, proves = (choice & 2) != 0;
  const Party own{1, std::vector<std::byte>(5, std::byte{1})}, peer{2, std::vector<std::byte>(6, std::byte{2})};
  static const std::array<Secret, 2> kPrivate{secretOf(3), secretOf(4)};
  KeyAgreement here(credentials(withKey), own, {.own = 0, .peer = 1}, kPrivate[0]);
  KeyAgreement there(credentials(withKey), peer, {.own = 1, .peer = 0}, kPrivate[1]);
  Party claimed = peer;
  if ((choice & 4) != 0) claimed.address = editedBytes(peer.address, script);
  std::vector<std::byte> offer = editedBytes(there.offer(), script);
  if (proves) prove(claimed, offer, withKey);
  const Status accepted = here.accept(claimed, offer);
  if (!accepted.ok()) {
    checkLine(accepted.error().message);
    return;
  }
  const bool asMade = offer == there.offer() && claimed.address == peer.address;
  GLOO_BYPASS_CHECK(proves || asMade);
  if (!asMade) return;
  // Both have the same keys, and another one for each direction.
  GLOO_BYPASS_CHECK(there.accept(own, here.offer()).ok());
  for (const std::uint64_t sender : {own.sessionId, peer.sessionId}) {
    GLOO_BYPASS_CHECK(
        std::ranges::equal(here.trafficSecret(sender, 0).bytes(), there.trafficSecret(sender, 0).bytes()));
  }
  GLOO_BYPASS_CHECK(!std::ranges::equal(here.trafficSecret(1, 0).bytes(), here.trafficSecret(2, 0).bytes()));
}

}  // namespace gloo_bypass::fuzz
