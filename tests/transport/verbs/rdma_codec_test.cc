// Addresses and frames: decoding returns what was encoded, and accepts nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "transport/channel/channel_address.h"
#include "transport/verbs/rdma_address.h"
#include "transport/verbs/rdma_frame.h"

namespace gloo_bypass::verbs {
namespace {

using Bytes = std::vector<std::byte>;

RailAddress rail(unsigned seed) {
  RailAddress address;
  for (std::size_t i = 0; i < address.gid.size(); ++i) address.gid[i] = static_cast<std::uint8_t>(seed + i);
  address.queuePair = 0xfffff0 + seed;
  address.firstPsn = 0xabcdef;
  address.lid = static_cast<std::uint16_t>(0x1234 + seed);
  address.mtu = 5;
  address.linkLayer = 2;
  address.readDepth = 16;
  return address;
}

RdmaAddress validAddress(std::size_t rails) {
  RdmaAddress address;
  address.controlIp = rail(9).gid;
  address.controlPort = 4711;
  address.eagerBytes = 8192;
  address.credits = 64;
  address.eagerWindow = 1ull << 33;
  address.frames = rail(1);
  for (std::size_t i = 0; i < rails; ++i) address.rails.push_back(rail(static_cast<unsigned>(i) + 2));
  return address;
}

// Of a rank whose peers read over queue pairs of their own.
RdmaAddress servingAddress(std::size_t rails) {
  RdmaAddress address = validAddress(rails);
  for (std::uint32_t i = 0; i < rails; ++i) address.served.push_back({.number = 0xfffe00 + i, .firstPsn = 77 + i});
  return address;
}

RdmaFrame frameOf(FrameType type) {
  RdmaFrame frame;
  frame.type = type;
  frame.session = 0xdeadbeef;
  frame.slotsReturned = 0xfffffffe;
  frame.windowReturned = 1ull << 50;
  const bool message = type == FrameType::kEager || type == FrameType::kAnnounce;
  if (message) {
    frame.key = {MessageKind::kBound, 0x8000000000000001ull};
    frame.length = type == FrameType::kEager ? 5 : 1ull << 40;
    frame.remoteOffset = 77;
  }
  if (type == FrameType::kAnnounce || type == FrameType::kDone) frame.id = 0x0123456789abcdefull;
  if (type == FrameType::kAnnounce) {
    frame.address = 0x7f0000001000;
    frame.rails = kMaxRails;
    for (std::size_t i = 0; i < kMaxRails; ++i) frame.remoteKeys[i] = static_cast<std::uint32_t>(i * 17 + 1);
  }
  return frame;
}

Bytes written(const RdmaFrame& frame) {
  Bytes bytes(kMaxFrameBytes + 16);
  bytes.resize(encodeFrame(frame, bytes) + (frame.type == FrameType::kEager ? frame.length : 0));
  return bytes;
}

constexpr FrameType kTypes[] = {FrameType::kEager, FrameType::kAnnounce, FrameType::kDone, FrameType::kCredit,
                                FrameType::kBye};

// A copy of exactly this size, so that reading beyond it is detected.
auto decoded(const Bytes& bytes) {
  const Bytes exact(bytes.begin(), bytes.end());
  auto frame = decodeFrame(exact);
  if (frame) {
    EXPECT_LE(frame->payload.size(), exact.size());
    if (!frame->payload.empty()) {
      EXPECT_EQ(frame->payload.data() + frame->payload.size(), exact.data() + exact.size());
    }
    frame->payload = {};
  }
  return frame;
}

// `attempt` with random changes of `valid`; the seed is in the failure's trace.
void mutate(const Bytes& valid, const std::function<void(const Bytes&)>& attempt) {
  for (unsigned seed = 1; seed <= 20'000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Bytes bytes = valid;
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % (valid.size() + 40));
    attempt(bytes);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(RdmaAddress, RoundTrip_KeepsEveryField) {
  for (std::size_t rails = 1; rails <= kMaxRails; ++rails) {
    const RdmaAddress address = validAddress(rails);
    const Bytes bytes = encodeRdmaAddress(address);
    const auto read = decodeRdmaAddress(bytes);
    ASSERT_TRUE(read.ok()) << rails;
    EXPECT_EQ(encodeRdmaAddress(read.value()), bytes);
    EXPECT_EQ(read.value().controlIp, address.controlIp);
    EXPECT_EQ(read.value().controlPort, 4711);
    EXPECT_EQ(read.value().eagerBytes, 8192u);
    EXPECT_EQ(read.value().credits, 64u);
    EXPECT_EQ(read.value().eagerWindow, 1ull << 33);
    ASSERT_EQ(read.value().rails.size(), rails);
    const RailAddress &in = read.value().rails.back(), &out = address.rails.back();
    EXPECT_EQ(in.gid, out.gid);
    EXPECT_EQ(in.queuePair, out.queuePair);
    EXPECT_EQ(in.firstPsn, out.firstPsn);
    EXPECT_EQ(in.lid, out.lid);
    EXPECT_EQ(in.readDepth, out.readDepth);
  }
}

TEST(RdmaAddress, ServedQueuePairs_AreKeptAndReadersFindThem) {
  for (std::size_t rails = 1; rails <= kMaxRails; ++rails) {
    const Bytes bytes = encodeRdmaAddress(servingAddress(rails));
    EXPECT_LE(bytes.size(), kMaxPortAddressBytes);
    const auto read = decodeRdmaAddress(bytes);
    ASSERT_TRUE(read.ok()) << rails;
    EXPECT_EQ(encodeRdmaAddress(read.value()), bytes);
    ASSERT_EQ(read.value().served.size(), rails);
    const RailAddress last = read.value().servedAt(rails - 1);
    EXPECT_EQ(last.queuePair, 0xfffe00 + rails - 1);
    EXPECT_EQ(last.firstPsn, 77 + rails - 1);
    EXPECT_EQ(last.gid, read.value().rails.back().gid);
  }
  const RdmaAddress plain = validAddress(2);
  EXPECT_EQ(plain.servedAt(1).queuePair, plain.rails[1].queuePair);
}

TEST(RdmaAddress, EveryTruncationAndExtension_IsRefused) {
  for (const Bytes& bytes : {encodeRdmaAddress(validAddress(2)), encodeRdmaAddress(servingAddress(2))}) {
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      EXPECT_FALSE(decodeRdmaAddress(Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n))).ok()) << n;
    }
    Bytes longer = bytes;
    longer.push_back({});
    EXPECT_FALSE(decodeRdmaAddress(longer).ok());
  }
}

TEST(RdmaAddress, EveryFieldOutOfRange_IsRefused) {
  const std::vector<std::function<void(RdmaAddress&)>> faults = {
      [](RdmaAddress& a) { a.controlPort = 0; },
      [](RdmaAddress& a) { a.eagerBytes = 0; },
      [](RdmaAddress& a) { a.eagerBytes = (1 << 20) + 1; },
      [](RdmaAddress& a) { a.credits = 1; },
      [](RdmaAddress& a) { a.credits = (1 << 16) + 1; },
      [](RdmaAddress& a) { a.eagerWindow = (1ull << 40) + 1; },
      [](RdmaAddress& a) { a.frames.queuePair = 1 << 24; },
      [](RdmaAddress& a) { a.rails[1].firstPsn = 1 << 24; },
      [](RdmaAddress& a) { a.rails[0].mtu = 0; },
      [](RdmaAddress& a) { a.frames.mtu = 6; },
      [](RdmaAddress& a) { a.rails[1].readDepth = 0; },
      [](RdmaAddress& a) { a.served[1].number = 1 << 24; },
      [](RdmaAddress& a) { a.served[0].firstPsn = 1 << 24; },
  };
  for (std::size_t i = 0; i < faults.size(); ++i) {
    RdmaAddress address = servingAddress(2);
    faults[i](address);
    EXPECT_FALSE(decodeRdmaAddress(encodeRdmaAddress(address)).ok()) << i;
  }
}

TEST(RdmaAddress, RandomMutations_AreRefusedOrReadAsWritten) {
  for (const RdmaAddress& address : {validAddress(3), servingAddress(3)}) {
    mutate(encodeRdmaAddress(address), [](const Bytes& bytes) {
      const auto read = decodeRdmaAddress(Bytes(bytes.begin(), bytes.end()));
      if (read.ok()) {
        EXPECT_EQ(encodeRdmaAddress(read.value()), bytes);
      }
    });
  }
}

TEST(RdmaFrame, RoundTrip_KeepsEveryField) {
  for (const FrameType type : kTypes) {
    const RdmaFrame out = frameOf(type);
    const auto read = decoded(written(out));
    ASSERT_TRUE(read) << static_cast<int>(type);
    const RdmaFrame& in = read->frame;
    EXPECT_EQ(in.type, type);
    EXPECT_EQ(in.session, out.session);
    EXPECT_EQ(in.slotsReturned, out.slotsReturned);
    EXPECT_EQ(in.windowReturned, out.windowReturned);
    EXPECT_EQ(in.length, out.length);
    EXPECT_EQ(in.remoteOffset, out.remoteOffset);
    EXPECT_EQ(in.address, out.address);
    EXPECT_EQ(in.rails, out.rails);
    EXPECT_EQ(in.remoteKeys, out.remoteKeys);
    if (type == FrameType::kEager || type == FrameType::kAnnounce) {
      EXPECT_EQ(in.key, out.key);
    }
    if (type == FrameType::kAnnounce || type == FrameType::kDone) {
      EXPECT_EQ(in.id, out.id);
    }
  }
}

TEST(RdmaFrame, EveryTruncationAndExtension_IsRefused) {
  for (const FrameType type : kTypes) {
    const Bytes bytes = written(frameOf(type));
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      EXPECT_FALSE(decoded(Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)))) << n;
    }
    Bytes longer = bytes;
    longer.push_back({});
    EXPECT_FALSE(decoded(longer)) << static_cast<int>(type);
  }
}

TEST(RdmaFrame, FieldsOutOfRange_AreRefused) {
  Bytes bytes = written(frameOf(FrameType::kCredit));
  for (const int type : {0, 6, 255}) {
    bytes[0] = static_cast<std::byte>(type);
    EXPECT_FALSE(decoded(bytes)) << type;
  }
  bytes = written(frameOf(FrameType::kDone));
  bytes[1] = std::byte{2};
  EXPECT_FALSE(decoded(bytes)) << "kind";
  bytes = written(frameOf(FrameType::kAnnounce));
  for (const int keys : {0, 1, 9, 255}) {
    bytes[2] = static_cast<std::byte>(keys);
    EXPECT_FALSE(decoded(bytes)) << keys;
  }
  RdmaFrame beyond = frameOf(FrameType::kAnnounce);
  beyond.length = UINT64_MAX - beyond.address + 1;
  EXPECT_FALSE(decoded(written(beyond)));
  Bytes eager = written(frameOf(FrameType::kEager));
  for (std::size_t i = 32; i < 40; ++i) eager[i] = std::byte{0xff};
  EXPECT_FALSE(decoded(eager)) << "length";
}

TEST(RdmaFrame, RandomMutations_AreRefusedOrWithinTheirBytes) {
  for (const FrameType type : kTypes) {
    mutate(written(frameOf(type)), [](const Bytes& bytes) {
      const auto read = decoded(bytes);
      if (read) {
        EXPECT_LE(read->frame.rails, kMaxRails);
      }
    });
  }
}

}  // namespace
}  // namespace gloo_bypass::verbs
