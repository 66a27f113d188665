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

// What a key file of these bytes must give, nothing or one or two keys: written from the file's description, not from
// its parser.
std::vector<std::string> digitsOf(std::string text) {
  constexpr std::size_t kDigits = 2 * kSecretBytes;
  if (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.size() != kDigits && (text.size() != 2 * kDigits + 1 || text[kDigits] != '\n')) return {};
  std::vector<std::string> keys{text.substr(0, kDigits)};
  if (text.size() > kDigits) keys.push_back(text.substr(kDigits + 1));
  for (std::string& key : keys) {
    if (!std::ranges::all_of(key, [](unsigned char each) { return std::isxdigit(each) != 0; })) return {};
    std::ranges::transform(key, key.begin(), [](unsigned char each) { return static_cast<char>(std::tolower(each)); });
  }
  return keys;
}

std::string hexOf(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte each : bytes) {
    for (const int shift : {4, 0}) text.push_back("0123456789abcdef"[std::to_integer<unsigned>(each) >> shift & 15]);
  }
  return text;
}

std::shared_ptr<const Credentials> credentials(std::size_t keys) {
  auto made = std::make_shared<Credentials>();
  made->job = "job";
  for (std::size_t i = 0; i < keys; ++i) made->preSharedKeys.push_back(secretOf(static_cast<std::uint8_t>(7 + i)));
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

// Proves an offer again with the keys that both ranks have, as a peer could that makes others (key_agreement.h).
void prove(const Party& peer, std::vector<std::byte>& offer, const std::vector<Secret>& keys) {
  const std::size_t proofs = std::max<std::size_t>(keys.size(), 1);
  if (offer.size() < kProofsBegin + proofs * kProofBytes) return;
  std::vector<std::byte> proven;
  append(proven, std::as_bytes(std::span(std::string_view("job"))));
  append(proven, 1);
  append(proven, 0);
  append(proven, peer.address);
  append(proven, std::span(offer).first(kProofsBegin));
  auto to = offer.begin() + kProofsBegin;
  for (std::size_t i = 0; i < proofs; ++i) {
    const Secret early = extract({}, keys.empty() ? Secret().bytes() : keys[i].bytes());
    const Secret proof = hmacSha256(deriveSecret(early, "gb address", {}).bytes(), {proven});
    to = std::copy_n(proof.bytes().begin(), kProofBytes, to);
  }
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
  const auto keys = readKeyFile(memory.path());
  const auto digits = digitsOf({input.begin(), input.end()});
  GLOO_BYPASS_CHECK(keys.ok() == !digits.empty());
  if (keys.ok()) {
    GLOO_BYPASS_CHECK(
        std::ranges::equal(keys.value(), digits, {}, [](const Secret& key) { return hexOf(key.bytes()); }));
    return;
  }
  checkLine(keys.error().message);
  // Whatever it holds, nothing of it is shown.
  const auto again = (memory.hold(octetsOf("x")), readKeyFile(memory.path()));
  GLOO_BYPASS_CHECK(again.error().message == keys.error().message);
}

void fuzzOffer(std::span<const std::uint8_t> input) {
  Script script(input);
  const std::uint8_t choice = script.byte();
  const bool proves = (choice & 2) != 0;
  const auto shared = credentials((choice & 1) == 0 ? 0 : (choice & 8) == 0 ? 1 : 2);
  const Party own{1, std::vector<std::byte>(5, std::byte{1})}, peer{2, std::vector<std::byte>(6, std::byte{2})};
  static const std::array<Secret, 2> kPrivate{secretOf(3), secretOf(4)};
  KeyAgreement here(shared, own, {.own = 0, .peer = 1}, kPrivate[0]);
  KeyAgreement there(shared, peer, {.own = 1, .peer = 0}, kPrivate[1]);
  Party claimed = peer;
  if ((choice & 4) != 0) claimed.address = editedBytes(peer.address, script);
  std::vector<std::byte> offer = editedBytes(there.offer(), script);
  if (proves) prove(claimed, offer, shared->preSharedKeys);
  const Status accepted = here.accept(claimed, offer);
  if (!accepted.ok()) {
    checkLine(accepted.error().message);
    return;
  }
  // One of two proofs may be wrong: accept() goes by the other, and the ranks then have different secrets.
  const bool asMade = offer == there.offer() && claimed.address == peer.address;
  GLOO_BYPASS_CHECK(
      proves || asMade ||
      (shared->preSharedKeys.size() == 2 && claimed.address == peer.address &&
       std::ranges::equal(std::span(offer).first(kProofsBegin), std::span(there.offer()).first(kProofsBegin))));
  GLOO_BYPASS_CHECK(there.accept(own, here.offer()).ok());
  for (const std::uint64_t sender : {own.sessionId, peer.sessionId}) {
    const Secret mine = here.trafficSecret(sender, 0), theirs = there.trafficSecret(sender, 0);
    GLOO_BYPASS_CHECK(std::ranges::equal(mine.bytes(), theirs.bytes()) == asMade);
  }
  if (!asMade) return;
  // Each direction has a key of its own.
  GLOO_BYPASS_CHECK(!std::ranges::equal(here.trafficSecret(1, 0).bytes(), here.trafficSecret(2, 0).bytes()));
}

}  // namespace gloo_bypass::fuzz
