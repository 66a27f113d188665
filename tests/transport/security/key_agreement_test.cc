#include "transport/security/key_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "tests/transport/security/octets.h"

namespace gloo_bypass::security::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct RankOptions {
  std::vector<Octets> keys;
  std::string job;
  int rank = 0, peerRank = 1;
  unsigned seed = 1;
};

class Rank {
 public:
  explicit Rank(const RankOptions& options)
      : party{.sessionId = 100 + options.seed, .address = pattern(40, options.seed)},
        agreement(credentials(options), party, {options.rank, options.peerRank}, secretOf(pattern(32, options.seed))) {}

  Status meet(const Rank& peer) { return agreement.accept(peer.party, peer.agreement.offer()); }
  Octets sends(std::size_t rail = 0) const { return copyOf(agreement.trafficSecret(agreement.ownId(), rail).bytes()); }
  Octets receives(std::size_t rail = 0) const {
    return copyOf(agreement.trafficSecret(agreement.peerId(), rail).bytes());
  }

  Party party;
  KeyAgreement agreement;

 private:
  static std::shared_ptr<const Credentials> credentials(const RankOptions& options) {
    auto made = std::make_shared<Credentials>();
    for (const Octets& key : options.keys) made->preSharedKeys.push_back(secretOf(key));
    made->job = options.job;
    return made;
  }
};

RankOptions second(RankOptions options) {
  std::swap(options.rank, options.peerRank);
  options.seed = 2;
  return options;
}

std::string refusal(const Status& status) { return status.ok() ? "" : status.error().message; }

TEST(KeyAgreement, TwoRanks_GetTheSameSecretsForEachDirectionAndRail) {
  for (const auto& keys : {std::vector<Octets>{}, {pattern(32, 9)}, {pattern(32, 9), pattern(32, 10)}}) {
    const RankOptions options{.keys = keys, .job = "job 7"};
    Rank a(options), b(second(options));
    ASSERT_TRUE(a.meet(b).ok());
    ASSERT_TRUE(b.meet(a).ok());
    EXPECT_EQ(a.sends(), b.receives());
    EXPECT_EQ(a.receives(), b.sends());
    EXPECT_NE(a.sends(), a.receives());
    EXPECT_EQ(a.sends(3), b.receives(3));
    EXPECT_NE(a.sends(3), a.sends(0));
  }
}

TEST(KeyAgreement, Tokens_AreAlikeAtBothAndDifferBySenderAndWord) {
  Rank a(RankOptions{}), b(second({}));
  ASSERT_TRUE(a.meet(b).ok());
  ASSERT_TRUE(b.meet(a).ok());
  const std::uint64_t ofA = a.agreement.ownId(), ofB = a.agreement.peerId();
  EXPECT_EQ(a.agreement.token(ofA, "ready"), b.agreement.token(ofA, "ready"));
  EXPECT_NE(a.agreement.token(ofA, "ready"), a.agreement.token(ofB, "ready"));
  EXPECT_NE(a.agreement.token(ofA, "ready"), a.agreement.token(ofA, "abort"));
  Rank other(RankOptions{.seed = 3}), third(second({}));
  ASSERT_TRUE(other.meet(third).ok());
  EXPECT_NE(a.agreement.token(ofA, "ready"), other.agreement.token(ofA, "ready"));
}

TEST(KeyAgreement, AnotherKey_GivesOtherSecrets) {
  const RankOptions plain, keyed{.keys = {pattern(32, 9)}};
  Rank a(plain), b(second(plain)), c(keyed), d(second(keyed));
  ASSERT_TRUE(a.meet(b).ok() && b.meet(a).ok() && c.meet(d).ok() && d.meet(c).ok());
  EXPECT_NE(a.sends(), c.sends());
}

// A fleet goes from one key to the next by files with both: any two ranks that meet have one in common.
TEST(KeyAgreement, OneKeyInCommon_IsTheSessions) {
  const Octets leaving = pattern(32, 9), coming = pattern(32, 10);
  const std::vector<std::vector<Octets>> files{{leaving}, {leaving, coming}, {coming, leaving}, {coming}};
  for (std::size_t first = 0; first < files.size(); ++first) {
    for (std::size_t next : {first, first + 1}) {
      if (next == files.size()) continue;
      for (const bool swapped : {false, true}) {
        RankOptions here{.keys = files[first]}, there{.keys = files[next]};
        if (swapped) std::swap(here.keys, there.keys);
        Rank a(here), b(second(there));
        ASSERT_TRUE(a.meet(b).ok() && b.meet(a).ok()) << first << " and " << next;
        EXPECT_EQ(a.sends(), b.receives()) << first << " and " << next;
      }
    }
  }
  Rank a({.keys = {leaving, pattern(32, 11)}}), b(second({.keys = {coming, pattern(32, 12)}}));
  EXPECT_THAT(refusal(a.meet(b)), HasSubstr("GLOO_BYPASS_KEY_FILE"));
}

// Whoever writes to the store cannot choose which of two keys is used, nor repeat a proof in the place of another.
TEST(KeyAgreement, ProofsChangedInTheStore_GiveOtherSecrets) {
  const RankOptions both{.keys = {pattern(32, 9), pattern(32, 10)}};
  const auto proof = [](Octets& offer, std::size_t i) { return offer.begin() + kProofsBegin + i * kProofBytes; };
  const auto change = [&](const std::function<void(Octets&)>& edit) {
    Rank a(both), b(second(both));
    Octets offer = b.agreement.offer();
    edit(offer);
    ASSERT_TRUE(b.meet(a).ok());
    if (a.agreement.accept(b.party, offer).ok()) {
      EXPECT_NE(a.sends(), b.receives());
    }
  };
  change([&](Octets& offer) { std::swap_ranges(proof(offer, 0), proof(offer, 1), proof(offer, 1)); });
  change([&](Octets& offer) { std::fill_n(proof(offer, 0), kProofBytes, std::byte{0}); });
  change([&](Octets& offer) { std::copy_n(proof(offer, 0), kProofBytes, proof(offer, 1)); });
  change([&](Octets& offer) {
    offer[1] = std::byte{1};
    offer.resize(offer.size() - kProofBytes);
  });
}

TEST(KeyAgreement, OneRankWithoutAKey_IsRefusedOnBothInOneLine) {
  const RankOptions keyed{.keys = {pattern(32, 9)}};
  RankOptions plain;
  Rank a(keyed), b(second(plain));
  EXPECT_THAT(refusal(a.meet(b)), HasSubstr("is set here and not on the peer"));
  EXPECT_THAT(refusal(b.meet(a)), HasSubstr("is set on the peer and not here"));
}

TEST(KeyAgreement, OtherKeyJobOrRank_IsRefusedWithoutAWordAboutEither) {
  const RankOptions options{.keys = {pattern(32, 9)}, .job = "secretname"};
  RankOptions otherKey = second(options), otherJob = second(options), otherRank = second(options);
  otherKey.keys = {pattern(32, 10)};
  otherJob.job = "another";
  otherRank.rank = 5;
  for (const RankOptions& other : {otherKey, otherJob, otherRank}) {
    Rank a(options), b(other);
    for (const std::string& why : {refusal(a.meet(b)), refusal(b.meet(a))}) {
      EXPECT_THAT(why, HasSubstr("GLOO_BYPASS_KEY_FILE"));
      EXPECT_THAT(why, Not(HasSubstr("secretname")));
      EXPECT_THAT(why, Not(HasSubstr("\n")));
    }
  }
}

TEST(KeyAgreement, AnyBitOfAddressOrOfferChangedInTheStore_IsRefused) {
  const RankOptions options{.keys = {pattern(32, 9)}};
  const Rank b(second(options));
  for (std::size_t bit = 0; bit < 8 * b.party.address.size(); ++bit) {
    Party changed = b.party;
    changed.address[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_FALSE(Rank(options).agreement.accept(changed, b.agreement.offer()).ok()) << bit;
  }
  for (std::size_t bit = 0; bit < 8 * b.agreement.offer().size(); ++bit) {
    Octets changed = b.agreement.offer();
    changed[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_FALSE(Rank(options).agreement.accept(b.party, changed).ok()) << bit;
  }
  for (std::size_t length = 0; length < b.agreement.offer().size(); ++length) {
    EXPECT_FALSE(Rank(options).agreement.accept(b.party, std::span(b.agreement.offer()).first(length)).ok());
  }
}

// Whoever writes to the store, but has no key: an offer of their own, with another public key.
TEST(KeyAgreement, OfferOfAStrangerWithoutTheKey_IsRefused) {
  const RankOptions options{.keys = {pattern(32, 9)}};
  RankOptions stranger = second(options);
  stranger.keys = {Octets(32)};
  const Rank inTheMiddle(stranger);
  EXPECT_FALSE(Rank(options).meet(inTheMiddle).ok());
}

TEST(KeyAgreement, PublicKeyOfLowOrder_IsRefused) {
  RankOptions options;
  const Rank b(second(options));
  Octets offer = b.agreement.offer();
  std::fill_n(offer.begin() + 2, 32, std::byte{0});
  EXPECT_FALSE(Rank(options).agreement.accept(b.party, offer).ok());
}

TEST(KeyAgreement, SecondOffer_IsRefused) {
  const RankOptions options;
  Rank a(options), b(second(options));
  ASSERT_TRUE(a.meet(b).ok());
  EXPECT_FALSE(a.meet(b).ok());
}

TEST(KeyAgreement, FreshPrivateKey_GivesOtherSecretsUnderTheSameKeyFile) {
  RankOptions options{.keys = {pattern(32, 9)}};
  Rank a(options), b(second(options));
  options.seed = 3;
  Rank again(options), other(second(options));
  ASSERT_TRUE(a.meet(b).ok() && again.meet(other).ok());
  EXPECT_NE(a.sends(), again.sends());
}

TEST(KeyAgreement, Offer_ShowsNothingOfTheKey) {
  const Octets key = pattern(32, 9);
  const Rank a(RankOptions{.keys = {key}});
  const Octets& offer = a.agreement.offer();
  EXPECT_EQ(std::search(offer.begin(), offer.end(), key.begin(), key.begin() + 4), offer.end());
}

}  // namespace
}  // namespace gloo_bypass::security::test
