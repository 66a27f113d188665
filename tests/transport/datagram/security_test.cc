// How two channels agree on sealing, or fail when they connect; and key files.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "tests/support/channel_pair.h"
#include "tests/support/loopback_port.h"
#include "tests/support/temporary_folder.h"
#include "transport/sessions/credentials.h"

namespace gloo_bypass {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kDigits = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";

class KeyFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text, mode_t mode = 0600) {
    const std::string path = folder_ / std::to_string(++files_);
    writeText(path, text);
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  static std::string refusal(const std::string& path) {
    const auto key = readKeyFile(path);
    if (key) return "";
    EXPECT_THAT(key.error().message, Not(HasSubstr("\n")));
    EXPECT_THAT(key.error().message, Not(HasSubstr(kDigits.substr(0, 8))));
    return key.error().message;
  }

  TemporaryFolder folder_;
  int files_ = 0;
};

TEST_F(KeyFile, DigitsWithAndWithoutANewLine_AreTheKey) {
  for (const char* end : {"", "\n"}) {
    const auto keys = readKeyFile(write(kDigits + end));
    ASSERT_TRUE(keys.ok()) << keys.error().message;
    ASSERT_EQ(keys.value().size(), 1u);
    for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(std::to_integer<std::size_t>(keys.value()[0].bytes()[i]), i);
  }
  EXPECT_TRUE(readKeyFile(write(kDigits, 0400)).ok());
}

TEST_F(KeyFile, TwoLines_AreTwoKeysInTheirOrder) {
  const std::string other(kDigits.rbegin(), kDigits.rend());
  for (const char* end : {"", "\n"}) {
    const auto keys = readKeyFile(write(kDigits + "\n" + other + end));
    ASSERT_TRUE(keys.ok()) << keys.error().message;
    ASSERT_EQ(keys.value().size(), 2u);
    EXPECT_EQ(keys.value()[0].bytes()[1], std::byte{1});
    EXPECT_EQ(keys.value()[1].bytes()[0], std::byte{0xf1});
  }
  for (const std::string& text : {kDigits + "\n" + other + "\n" + kDigits, kDigits + "\n\n" + other,
                                  kDigits + "\n" + other + "\n\n", kDigits + other, kDigits + "\r\n" + other}) {
    EXPECT_THAT(refusal(write(text)), HasSubstr("two such lines")) << text;
  }
}

TEST_F(KeyFile, ReadableOrWritableByOthers_IsRefused) {
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0644, 0666, 0610}) {
    EXPECT_THAT(refusal(write(kDigits, mode)), HasSubstr("chmod 600")) << mode;
  }
}

TEST_F(KeyFile, OfAnotherUser_IsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to give a file away";
  const std::string path = write(kDigits);
  ASSERT_EQ(::chown(path.c_str(), 12'345, 12'345), 0);
  EXPECT_THAT(refusal(path), HasSubstr("owner"));
}

TEST_F(KeyFile, OtherText_IsRefusedWithoutShowingIt) {
  for (const std::string& text : {std::string(), kDigits.substr(1), kDigits + "0", kDigits + "\n\n", " " + kDigits,
                                  kDigits.substr(1) + "g", std::string(100'000, 'a')}) {
    EXPECT_THAT(refusal(write(text)), HasSubstr("64 hexadecimal digits"));
  }
}

TEST_F(KeyFile, MissingOrNoRegularFile_IsRefused) {
  EXPECT_THAT(refusal(folder_ / "none"), HasSubstr("No such file"));
  EXPECT_THAT(refusal(folder_.path), HasSubstr("regular"));
  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(refusal(fifo), HasSubstr("regular"));
}

// Two transports that reach each other's port only by the addresses' session ids: connect() alone is tried.
class Agreement : public KeyFile {
 protected:
  static TransportConfig sealing(const std::string& keyFile = "", const std::string& job = "") {
    TransportConfig config;
    config.security = Security::kEncrypt;
    config.keyFile = keyFile;
    config.job = job;
    return config;
  }
  struct End {
    explicit End(const TransportConfig& config, int rank = 0, int peerRank = 1)
        : transport(makeDatagramTransport(config, test::makeLoopbackPort(8192, 256)).value()) {
      transport->progress().exclusive([&] {
        channel = std::move(transport->openChannel({.localRank = rank, .peerRank = peerRank}, &recorder).value());
        address = channel->localAddress();
      });
    }
    ~End() {
      transport->progress().exclusive([&] { channel.reset(); });
    }
    std::string refusalOf(const End& peer) {
      Status status;
      transport->progress().exclusive([&] { status = channel->connect(peer.address); });
      return status.ok() ? "" : status.error().message;
    }
    std::shared_ptr<Transport> transport;
    test::Recorder recorder;
    std::unique_ptr<MessageChannel> channel;
    std::vector<std::byte> address;
  };
  // Both ends' refusals.
  static std::vector<std::string> refusals(const TransportConfig& one, const TransportConfig& other) {
    End a(one, 0, 1), b(other, 1, 0);
    return {a.refusalOf(b), b.refusalOf(a)};
  }
};

TEST_F(Agreement, OneEndSealsAndTheOtherDoesNot_BothFailNamingTheSetting) {
  for (const std::string& why : refusals(sealing(), {})) EXPECT_THAT(why, HasSubstr("GLOO_BYPASS_SECURITY is"));
}

TEST_F(Agreement, OtherKeyFiles_BothFailAndNoneShowsItsKey) {
  const std::string one = write(kDigits);
  const std::string other = write(kDigits.substr(2) + "ff");
  for (const std::string& why : refusals(sealing(one), sealing(other))) {
    EXPECT_THAT(why, HasSubstr("GLOO_BYPASS_KEY_FILE"));
    EXPECT_THAT(why, Not(HasSubstr("0405")));
  }
  for (const std::string& why : refusals(sealing(one), sealing())) EXPECT_THAT(why, HasSubstr("GLOO_BYPASS_KEY_FILE"));
}

TEST_F(Agreement, FilesOnTheWayToAnotherKey_Agree) {
  const std::string before = kDigits, after = kDigits.substr(2) + "ff";
  const std::string old = write(before), both = write(before + "\n" + after), renewed = write(after);
  for (const std::string& file : {old, both, renewed}) {
    for (const std::string& why : refusals(sealing(file), sealing(both))) {
      EXPECT_THAT(why, HasSubstr("loopback"));  // these two ports have no path; keys come before that
    }
  }
}

TEST_F(Agreement, OtherJobs_BothFail) {
  const std::string key = write(kDigits);
  for (const std::string& why : refusals(sealing(key, "red"), sealing(key, "blue"))) {
    EXPECT_THAT(why, HasSubstr("GLOO_BYPASS_JOB"));
  }
}

TEST_F(Agreement, UnusableKeyFile_NoTransportIsMade) {
  const auto made = makeDatagramTransport(sealing(write("nonsense")), test::makeLoopbackPort(8192, 256));
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, HasSubstr("GLOO_BYPASS_KEY_FILE"));
}

TEST_F(Agreement, AddressInTheStore_FitsAndShowsNothingOfTheKey) {
  const End end(sealing(write(kDigits)));
  EXPECT_LE(end.address.size(), MessageChannel::kMaxAddressBytes);
  const auto key = readKeyFile(write(kDigits)).value()[0];
  EXPECT_EQ(std::search(end.address.begin(), end.address.end(), key.bytes().begin(), key.bytes().begin() + 4),
            end.address.end());
}

TEST_F(Agreement, NothingSealed_AddressIsAsBefore) {
  const End plain({});
  const auto decoded = decodeChannelAddress(plain.address);
  ASSERT_TRUE(decoded.ok());
  EXPECT_TRUE(decoded.value().offer.empty());
}

// An address of another session of the same rank, as a stale store or an attacker with access to it has it.
TEST_F(Agreement, OfferOfAnotherAddress_IsRefused) {
  const TransportConfig config = sealing(write(kDigits));
  End a(config, 0, 1), b(config, 1, 0);
  const End stale(config, 1, 0);
  auto mixed = decodeChannelAddress(b.address).value();
  mixed.offer = decodeChannelAddress(stale.address).value().offer;
  b.address = encodeChannelAddress(mixed);
  EXPECT_THAT(a.refusalOf(b), HasSubstr("GLOO_BYPASS_KEY_FILE"));
}

class SealedChannels : public test::ChannelPairTest {};

TEST_F(SealedChannels, PeerSendsItsHelloBeforeConnect_ConnectsWithoutWaitingForTheNext) {
  TransportConfig config;
  config.security = Security::kEncrypt;
  test::LoopbackImpairment impaired;
  impaired.reordering = 1e-9;  // not lossless, so that a Hello may come again
  transport = makeDatagramTransport(config, test::makeLoopbackPort(8192, 256, impaired)).value();
  std::uint64_t packets = 0;
  exclusive([&] {
    a = std::move(transport->openChannel({.localRank = 0, .peerRank = 1}, &atA).value());
    b = std::move(transport->openChannel({.localRank = 1, .peerRank = 0}, &atB).value());
    ASSERT_TRUE(a->connect(b->localAddress()).ok());
  });
  ASSERT_TRUE(wait([&] {
    packets = a->counters().packetsSent;
    return packets > 0 && transport->report().bytesReceived > 0;
  }));
  exclusive([&] {
    ASSERT_TRUE(b->connect(a->localAddress()).ok());
    EXPECT_EQ(b->counters().packetsReceived, 1u);  // the one that has waited
  });
  ASSERT_TRUE(wait([&] { return atA.state == ChannelState::kConnected && atB.state == ChannelState::kConnected; }));
  EXPECT_EQ(b->counters().invalidReceived, 0u);
}

}  // namespace
}  // namespace gloo_bypass
