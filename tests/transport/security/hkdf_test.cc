#include "transport/security/hkdf.h"

#include <gtest/gtest.h>

#include "tests/transport/security/octets.h"
#include "transport/security/key_exchange.h"

namespace gloo_bypass::security::test {
namespace {

Octets expandedTo(std::size_t length, const Octets& secret, const Octets& info) {
  Octets out(length);
  expand(secret, info, out);
  return out;
}
Octets labelled(std::size_t length, const Secret& secret, std::string_view label, const Octets& context = {}) {
  Octets out(length);
  expandLabel(secret, label, context, out);
  return out;
}

TEST(Hkdf, VectorsOfRfc5869_AreAsPublished) {
  struct Vector {
    Octets keyMaterial, salt, info;
    const char *secret, *output;
  };
  const auto counting = [](std::size_t length, int first) {
    Octets out(length);
    for (std::size_t i = 0; i < length; ++i) out[i] = static_cast<std::byte>(first + static_cast<int>(i));
    return out;
  };
  for (const Vector& vector :
       {Vector{Octets(22, std::byte{0x0b}), counting(13, 0), counting(10, 0xf0),
               "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5",
               "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"},
        Vector{
            counting(80, 0), counting(80, 0x60), counting(80, 0xb0),
            "06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244",
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09da3275600"
            "c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"},
        Vector{Octets(22, std::byte{0x0b}),
               {},
               {},
               "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04",
               "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"}}) {
    const Secret secret = extract(vector.salt, vector.keyMaterial);
    EXPECT_EQ(copyOf(secret.bytes()), fromHex(vector.secret));
    const Octets output = fromHex(vector.output);
    EXPECT_EQ(expandedTo(output.size(), copyOf(secret.bytes()), vector.info), output);
  }
}

// RFC 8448, 3: the beginning of TLS 1.3's key schedule (RFC 8446, 7.1).
TEST(Hkdf, VectorOfTls13_IsAsPublished) {
  const Secret early = extract({}, Octets(32));
  EXPECT_EQ(copyOf(early.bytes()), fromHex("33ad0a1c607ec03b09e6cd9893680ce210adf300aa1f2660e1b22e10f170f92a"));
  const Secret derived = deriveSecret(early, "derived", sha256({}).bytes());
  EXPECT_EQ(copyOf(derived.bytes()), fromHex("6f2615a108c702c5678f54fc9dbab69716c076189c48250cebeac3576c3611ba"));
}

// RFC 9001, A.1.
TEST(Hkdf, VectorsOfQuic_AreAsPublished) {
  const Secret initial = extract(fromHex("38762cf7f55934b34d179ae6a4c80cadccbb7f0a"), fromHex("8394c8f03e515708"));
  EXPECT_EQ(copyOf(initial.bytes()), fromHex("7db5df06e7a69e432496adedb00851923595221596ae2ae9fb8115c1e9ed0a44"));
  const Secret client = deriveSecret(initial, "client in", {}), server = deriveSecret(initial, "server in", {});
  EXPECT_EQ(copyOf(client.bytes()), fromHex("c00cf151ca5be075ed0ebfb5c80323c42d6b7db67881289af4008f1f6c357aea"));
  EXPECT_EQ(copyOf(server.bytes()), fromHex("3c199828fd139efd216c155ad844cc81fb82fa8d7446fa7d78be803acdda951b"));
  EXPECT_EQ(labelled(16, client, "quic key"), fromHex("1f369613dd76d5467730efcbe3b1a22d"));
  EXPECT_EQ(labelled(12, client, "quic iv"), fromHex("fa044b2f42a3fd3b46fb255c"));
  EXPECT_EQ(labelled(16, server, "quic key"), fromHex("cf3a5331653c364c88f0f379b6067e37"));
  EXPECT_EQ(labelled(12, server, "quic iv"), fromHex("0ac1493ca1905853b0bba03e"));
}

TEST(Hkdf, OtherLabelOrContext_GivesOtherBytes) {
  const Secret secret = secretOf(pattern(32, 1));
  EXPECT_NE(labelled(32, secret, "a"), labelled(32, secret, "b"));
  EXPECT_NE(labelled(32, secret, "a", pattern(1, 1)), labelled(32, secret, "a", pattern(1, 2)));
  EXPECT_NE(labelled(32, secret, "ab"), labelled(32, secret, "a", Octets{std::byte{'b'}}));
}

// RFC 7748, 5.2 and 6.1.
TEST(KeyExchange, VectorsOfRfc7748_AreAsPublished) {
  const auto agreed = [](const char* privateKey, const char* peer) {
    const auto secret = sharedSecret(secretOf(fromHex(privateKey)), arrayOf<PublicKey>(fromHex(peer)));
    return secret ? copyOf(secret->bytes()) : Octets{};
  };
  EXPECT_EQ(agreed("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
                   "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"),
            fromHex("c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"));
  EXPECT_EQ(agreed("4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
                   "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493"),
            fromHex("95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957"));
  const char* const bob = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb";
  EXPECT_EQ(copyOf(publicKeyOf(secretOf(fromHex(bob)))),
            fromHex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"));
  EXPECT_EQ(agreed(bob, "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"),
            fromHex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"));
}

// RFC 7748, 6.1: such a key makes the secret known to everybody.
TEST(KeyExchange, PeerKeyOfLowOrder_IsRefused) {
  EXPECT_FALSE(sharedSecret(secretOf(pattern(32, 5)), PublicKey{}).has_value());
  PublicKey one{};
  one.front() = std::byte{1};
  EXPECT_FALSE(sharedSecret(secretOf(pattern(32, 5)), one).has_value());
}

}  // namespace
}  // namespace gloo_bypass::security::test
