#include "transport/security/aead.h"

#include <gtest/gtest.h>

#include "tests/transport/security/nist_gcm_vectors.h"
#include "tests/transport/security/octets.h"
#include "transport/security/self_check.h"

namespace gloo_bypass::security::test {
namespace {

struct Library {
  const char* name;
  MakeAead make;
  bool there;
};

class AeadLibrary : public ::testing::TestWithParam<Library> {
 protected:
  void SetUp() override {
    if (!GetParam().there) GTEST_SKIP() << GetParam().name << " is not in this build, or not for this processor";
  }
  std::unique_ptr<Aead> make(const Octets& key) const { return GetParam().make(arrayOf<AeadKey>(key)); }
};

Octets sealed(Aead& aead, const Nonce& nonce, const Octets& associated, const Octets& text, std::size_t firstBytes) {
  Octets out(text.size() + kTagBytes);
  const std::span whole(text);
  aead.seal(nonce, associated, whole.first(firstBytes), whole.subspan(firstBytes), out.data());
  return out;
}

Octets opened(Aead& aead, const Nonce& nonce, const Octets& associated, const Octets& sealed) {
  Octets out(sealed.size() - kTagBytes);
  EXPECT_TRUE(aead.open(nonce, associated, sealed, out.data()));
  return out;
}

TEST_P(AeadLibrary, NistVectors_SealAndOpenAsPublished) {
  int right = 0, wrong = 0;
  for (const GcmVector& vector : kNistGcmVectors) {
    const auto aead = make(fromHex(vector.key));
    const auto nonce = arrayOf<Nonce>(fromHex(vector.nonce));
    const Octets text = fromHex(vector.text), associated = fromHex(vector.associated);
    Octets expected = fromHex(vector.sealed);
    const Octets tag = fromHex(vector.tag);
    expected.insert(expected.end(), tag.begin(), tag.end());
    Octets out(expected.size());
    if (!vector.authentic) {
      EXPECT_FALSE(aead->open(nonce, associated, expected, out.data())) << vector.tag;
      ++wrong;
      continue;
    }
    EXPECT_EQ(sealed(*aead, nonce, associated, text, text.size() / 3), expected) << vector.tag;
    EXPECT_EQ(opened(*aead, nonce, associated, expected), text) << vector.tag;
    ++right;
  }
  EXPECT_EQ(right, 25);
  EXPECT_GE(wrong, 10);
}

// RFC 9001, A.3: the server's Initial packet. A.4: the tag of a Retry packet, which has no text.
TEST_P(AeadLibrary, QuicVectors_SealAsPublished) {
  const auto server = make(fromHex("cf3a5331653c364c88f0f379b6067e37"));
  auto nonce = arrayOf<Nonce>(fromHex("0ac1493ca1905853b0bba03e"));
  nonce.back() ^= std::byte{1};  // packet number 1
  const Octets header = fromHex("c1000000010008f067a5502a4262b50040750001");
  const Octets text = fromHex(
      "02000000000600405a020000560303eefce7f7b37ba1d1632e96677825ddf73988cfc79825df566dc5430b9a045a1200130100002e003300"
      "24001d00209d3c940d89690b84d08a60993c144eca684d1081287c834d5311bcf32bb9da1a002b00020304");
  EXPECT_EQ(sealed(*server, nonce, header, text, 44),
            fromHex("5a482cd0991cd25b0aac406a5816b6394100f37a1c69797554780bb38cc5a99f5ede4cf73c3ec2493a1839b3dbcba3f6ea"
                    "46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84022f8ef4cdd93795d77d06edbb7aaf2f58891850abbd"
                    "ca3d20398c276456cbc42158407dd074ee"));
  const auto retry = make(fromHex("be0c690b9f66575a1d766b54e368c84e"));
  const Octets pseudoPacket = fromHex("088394c8f03e515708ff000000010008f067a5502a4262b5746f6b656e");
  EXPECT_EQ(sealed(*retry, arrayOf<Nonce>(fromHex("461599d35d632bf2239825bb")), pseudoPacket, {}, 0),
            fromHex("04a265ba2eff4d829058fb3f0f2496ba"));
}

TEST_P(AeadLibrary, InPlace_GivesTheSameBytes) {
  const auto aead = make(pattern(16, 3));
  for (const std::size_t length : {0u, 1u, 44u, 1456u, 65'000u}) {
    const Octets text = pattern(length, 9), associated = pattern(16, 5);
    const Nonce nonce = arrayOf<Nonce>(pattern(12, 1));
    Octets place = text;
    place.resize(length + kTagBytes);
    aead->seal(nonce, associated, std::span(place).first(length / 2),
               std::span(place).subspan(length / 2, length - length / 2), place.data());
    EXPECT_EQ(place, sealed(*aead, nonce, associated, text, 0)) << length;
    ASSERT_TRUE(aead->open(nonce, associated, place, place.data())) << length;
    place.resize(length);
    EXPECT_EQ(place, text);
  }
}

TEST_P(AeadLibrary, AnyBitFlipped_IsRefused) {
  const auto aead = make(pattern(16, 3));
  const Octets text = pattern(100, 9), associated = pattern(16, 5);
  const Nonce nonce = arrayOf<Nonce>(pattern(12, 1));
  const Octets whole = sealed(*aead, nonce, associated, text, 44);
  Octets out(text.size());
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    Octets flipped = whole;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_FALSE(aead->open(nonce, associated, flipped, out.data())) << bit;
  }
  for (std::size_t bit = 0; bit < 8 * associated.size(); ++bit) {
    Octets flipped = associated;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_FALSE(aead->open(nonce, flipped, whole, out.data())) << bit;
  }
  EXPECT_EQ(opened(*aead, nonce, associated, whole), text);  // a refusal leaves nothing behind
}

INSTANTIATE_TEST_SUITE_P(Libraries, AeadLibrary,
                         ::testing::Values(Library{"OpenSsl", makeOpenSslAead, true},
                                           Library{"IpsecMb", makeIpsecMbAead, hasIpsecMb()}),
                         [](const auto& info) { return std::string(info.param.name); });

// Every length up to some blocks, cut everywhere, and the lengths of datagrams.
TEST(Aead, BothLibraries_GiveTheSameBytes) {
  if (!hasIpsecMb()) GTEST_SKIP() << "intel-ipsec-mb is not in this build, or not for this processor";
  const auto key = arrayOf<AeadKey>(pattern(16, 77));
  const auto one = makeOpenSslAead(key), other = makeIpsecMbAead(key);
  const auto compare = [&](std::size_t length, std::size_t cut) {
    const Octets text = pattern(length, static_cast<unsigned>(length)), associated = pattern(16, 5);
    const Nonce nonce = arrayOf<Nonce>(pattern(12, static_cast<unsigned>(length + cut)));
    const Octets whole = sealed(*one, nonce, associated, text, cut);
    EXPECT_EQ(sealed(*other, nonce, associated, text, cut), whole) << length << ", " << cut;
    EXPECT_EQ(opened(*other, nonce, associated, whole), text) << length << ", " << cut;
  };
  for (std::size_t length = 0; length <= 100; ++length) {
    for (std::size_t cut = 0; cut <= length; ++cut) compare(length, cut);
  }
  for (const std::size_t length : {532u, 1440u, 1456u, 8940u, 65'503u}) {
    for (const std::size_t cut : {28u, 40u, 44u, 84u, 500u}) compare(length, cut);
  }
}

TEST(Libraries, OfThisMachine_PassTheSelfCheck) {
  const Status checked = checkLibraries();
  EXPECT_TRUE(checked.ok()) << (checked.ok() ? "" : checked.error().message);
}

}  // namespace
}  // namespace gloo_bypass::security::test
