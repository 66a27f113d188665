// Tests the memory of frames, the frames under way, and the table of addresses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tools/fabric/switch/frame_arena.h"
#include "tools/fabric/switch/held_frames.h"
#include "tools/fabric/switch/mac_table.h"
#include "tools/fabric/switch/transport_checksum.h"

namespace gloo_bypass::fabric {
namespace {

std::vector<std::byte> pattern(std::size_t length, unsigned seed) {
  std::vector<std::byte> bytes(length);
  for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(seed * 7 + i);
  return bytes;
}

TEST(FrameArena, FramesOfAllSizes_KeepTheirBytes) {
  FrameArena arena(64u << 20);
  std::vector<std::pair<Frame*, std::vector<std::byte>>> frames;
  for (std::size_t length = 0; length <= FrameArena::kLongestFrame; length = length * 3 / 2 + 1) {
    auto bytes = pattern(length, static_cast<unsigned>(length));
    Frame* const frame = arena.copy(bytes);
    ASSERT_NE(frame, nullptr) << length;
    frames.emplace_back(frame, std::move(bytes));
  }
  for (const auto& [frame, bytes] : frames) {
    EXPECT_TRUE(std::ranges::equal(frame->bytes(), bytes)) << bytes.size();
    arena.release(frame);
  }
  EXPECT_EQ(arena.usedBytes(), 0U);
  EXPECT_GT(arena.peakBytes(), 0U);
}

TEST(FrameArena, FrameTooLong_IsRefused) {
  FrameArena arena(64u << 20);
  EXPECT_EQ(arena.copy(pattern(FrameArena::kLongestFrame + 1, 0)), nullptr);
}

TEST(FrameArena, LimitReached_RefusesUntilSomethingIsReleased) {
  FrameArena arena(2 * FrameArena::kSlabBytes);
  std::vector<Frame*> frames;
  while (Frame* const frame = arena.copy(pattern(1514, 1))) frames.push_back(frame);
  EXPECT_EQ(frames.size(), 2 * (FrameArena::kSlabBytes / 1536));
  EXPECT_LE(arena.usedBytes(), arena.limitBytes());
  arena.release(frames.back());
  frames.pop_back();
  // A short frame takes a longer one's place if no memory is left for its own size.
  Frame* const brief = arena.copy(pattern(60, 2));
  ASSERT_NE(brief, nullptr);
  EXPECT_EQ(arena.copy(pattern(60, 2)), nullptr);
  arena.release(brief);
  for (Frame* frame : frames) arena.release(frame);
  EXPECT_EQ(arena.usedBytes(), 0U);
}

TEST(FrameArena, MemoryOfOneSizeFreed_ServesAnother) {
  FrameArena arena(3 * FrameArena::kSlabBytes);
  std::mt19937 random(17);
  for (const std::size_t length : {60U, 9014U, 300U, 1514U, 60U}) {
    std::vector<Frame*> frames;
    while (Frame* const frame = arena.copy(pattern(length, 1))) frames.push_back(frame);
    EXPECT_GT(frames.size() * length, FrameArena::kSlabBytes) << length;
    std::shuffle(frames.begin(), frames.end(), random);
    for (Frame* frame : frames) arena.release(frame);
    EXPECT_EQ(arena.usedBytes(), 0U);
  }
}

TEST(FrameArena, RandomSizesAtTheLimit_NeverOverlapAndAllComeBack) {
  FrameArena arena(4 * FrameArena::kSlabBytes);
  std::mt19937 random(23);
  std::vector<std::pair<Frame*, unsigned>> frames;
  for (unsigned i = 0; i < 40'000; ++i) {
    const std::size_t length = random() % (random() % 8 == 0 ? 9000 : 200);
    if (Frame* const frame = arena.copy(pattern(length, i))) frames.emplace_back(frame, i);
    if (frames.size() > 2000 || random() % 3 == 0) {
      const std::size_t victim = random() % frames.size();
      ASSERT_TRUE(std::ranges::equal(frames[victim].first->bytes(),
                                     pattern(frames[victim].first->length, frames[victim].second)));
      arena.release(frames[victim].first);
      frames[victim] = frames.back();
      frames.pop_back();
    }
  }
  for (const auto& [frame, seed] : frames) {
    ASSERT_TRUE(std::ranges::equal(frame->bytes(), pattern(frame->length, seed)));
    arena.release(frame);
  }
  EXPECT_EQ(arena.usedBytes(), 0U);
}

TEST(FrameArena, SharedFrame_LivesUntilItsLastReference) {
  FrameArena arena(FrameArena::kSlabBytes);
  Frame* const frame = arena.copy(pattern(100, 3));
  FrameArena::retain(frame);
  arena.release(frame);
  EXPECT_GT(arena.usedBytes(), 0U);
  EXPECT_TRUE(std::ranges::equal(frame->bytes(), pattern(100, 3)));
  arena.release(frame);
  EXPECT_EQ(arena.usedBytes(), 0U);
}

TEST(HeldFrames, ManyFramesWithRandomTimes_ComeOutSortedAndStable) {
  constexpr std::size_t kLanes = 5, kFrames = 20'000;
  std::mt19937 random(4711);
  HeldFrames held(kLanes);
  struct Pushed {
    TimePoint due;
    std::size_t lane;
    std::size_t index;
  };
  std::vector<Pushed> pushed;
  std::vector<Frame> frames(kFrames);
  for (std::size_t i = 0; i < kFrames; ++i) {
    // Mostly growing, as on an edge; now and then a frame overtakes.
    const auto due =
        TimePoint(Duration(static_cast<Duration::rep>(i / 3 + (random() % 10 == 0 ? random() % 500 : 500))));
    pushed.push_back({due, random() % kLanes, i});
    held.push(pushed.back().lane, due, &frames[i]);
  }
  EXPECT_EQ(held.size(), kFrames);
  std::stable_sort(pushed.begin(), pushed.end(), [](const Pushed& a, const Pushed& b) { return a.due < b.due; });
  for (const Pushed& expected : pushed) {
    EXPECT_EQ(held.nextDue(), expected.due);
    EXPECT_FALSE(held.pop(expected.due - Duration(1)).has_value());
    const auto due = held.pop(expected.due);
    ASSERT_TRUE(due.has_value());
    ASSERT_EQ(due->frame, &frames[expected.index]);
    ASSERT_EQ(due->lane, expected.lane);
    ASSERT_EQ(due->due, expected.due);
  }
  EXPECT_EQ(held.size(), 0U);
  EXPECT_EQ(held.nextDue(), kNever);
  EXPECT_FALSE(held.pop(kNever).has_value());
}

dpdk::MacAddress macOf(std::uint32_t number) {
  return {0x02,
          0,
          static_cast<std::uint8_t>(number >> 24),
          static_cast<std::uint8_t>(number >> 16),
          static_cast<std::uint8_t>(number >> 8),
          static_cast<std::uint8_t>(number)};
}

TEST(MacTable, MoreAddressesThanItHolds_AreNotLearnt) {
  MacTable table;
  for (std::uint32_t i = 0; i < 2 * MacTable::kMaxAddresses; ++i) EXPECT_TRUE(table.learn(macOf(i), 1));
  EXPECT_EQ(table.size(), MacTable::kMaxAddresses);
  EXPECT_EQ(table.find(macOf(0)), 1U);
  EXPECT_FALSE(table.find(macOf(2 * MacTable::kMaxAddresses - 1)).has_value());
  EXPECT_TRUE(table.learn(macOf(0), 2));
  EXPECT_EQ(table.find(macOf(0)), 2U);
}

TEST(MacTable, GroupAddressAsSource_IsNotLearnt) {
  MacTable table;
  EXPECT_TRUE(table.learn(dpdk::kBroadcastMac, 1));
  EXPECT_EQ(table.size(), 0U);
}

TEST(MacTable, FixedAddressAtAnotherPort_IsRefused) {
  MacTable table;
  table.fix(macOf(5), 3);
  EXPECT_FALSE(table.learn(macOf(5), 1));
  EXPECT_TRUE(table.learn(macOf(5), 3));
  EXPECT_EQ(table.find(macOf(5)), 3U);
}

// A TCP SYN from 10.0.0.2 to 10.0.0.1 as tcpdump -xx shows it.
std::vector<std::byte> synFrame() {
  constexpr std::string_view kHex =
      "0200000000010200000000020800450000283039400040066c950a0000020a0000011f90005000000001000000005002ffff"
      "0000"
      "0000";
  std::vector<std::byte> frame;
  for (std::size_t i = 0; i + 1 < kHex.size(); i += 2) {
    frame.push_back(static_cast<std::byte>(std::stoi(std::string(kHex.substr(i, 2)), nullptr, 16)));
  }
  return frame;
}

TEST(TransportChecksum, SegmentWithoutAndWithChecksum_IsToldApart) {
  std::vector<std::byte> frame = synFrame();
  // Zeroes the header's own checksum, since it is computed, so that this test checks only the other one.
  frame[24] = frame[25] = std::byte{0};
  const std::uint16_t header = dpdk::internetChecksum(std::span(frame).subspan(14, 20));
  dpdk::writeBe16(&frame[24], header);
  EXPECT_EQ(transportChecksumOf(frame), TransportChecksum::kWrong);
  // RFC 1071 by hand: pseudo header and segment.
  std::uint32_t sum = 0x0a00 + 0x0002 + 0x0a00 + 0x0001 + 6 + 20;
  for (std::size_t i = 34; i < 54; i += 2) sum += dpdk::readBe16(&frame[i]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  dpdk::writeBe16(&frame[50], static_cast<std::uint16_t>(~sum));
  EXPECT_EQ(transportChecksumOf(frame), TransportChecksum::kRight);
  frame[40] ^= std::byte{1};
  EXPECT_EQ(transportChecksumOf(frame), TransportChecksum::kWrong);
  EXPECT_EQ(transportChecksumOf(std::span(frame).first(50)), TransportChecksum::kNone);
  frame[23] = std::byte{1};  // ICMP, with a header's checksum that is wrong now
  EXPECT_EQ(transportChecksumOf(frame), TransportChecksum::kNone);
  EXPECT_EQ(transportChecksumOf({}), TransportChecksum::kNone);
}

}  // namespace
}  // namespace gloo_bypass::fabric
