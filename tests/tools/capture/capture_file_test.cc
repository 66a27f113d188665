// Capture files of each format, damaged, cut off at every byte.
#include "tools/capture/capture_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "tests/tools/capture/capture_builder.h"

namespace gloo_bypass::capture {
namespace {

using test::host;
using test::Octets;

Result<CaptureFile> openBytes(Octets& bytes, const std::string& filter = "") {
  return CaptureFile::open(::fmemopen(bytes.data(), bytes.size(), "rb"), "test", filter);
}

const Octets kFrame = test::tcpSegment({host(2), 1}, {host(3), 2}, 1, 20);

TEST(CaptureFile, Pcap_TimesLengthsAndBytesAreThose) {
  test::PcapFile pcap(1, 60);
  pcap.add(1'234'567'890, kFrame);
  pcap.add(1'234'567'891, kFrame, 5000);
  Octets bytes = pcap.bytes();
  auto file = openBytes(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file.value().snapLength(), 60u);
  auto frame = file.value().next();
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->time.count(), 1'234'567'890);
  EXPECT_EQ(frame->bytes.size(), 60u);
  EXPECT_EQ(frame->originalLength, kFrame.size());
  frame = file.value().next();
  EXPECT_EQ(frame->originalLength, 5000u);
  EXPECT_FALSE(file.value().next().has_value());
  EXPECT_FALSE(file.value().fault().has_value());
}

TEST(CaptureFile, PcapngInterfacesOfDifferentResolutions_AreOnOneClock) {
  test::PcapngFile pcapng;
  pcapng.addInterface(1, 6);
  pcapng.addInterface(1, 9);
  pcapng.addInterface(1, 3);
  pcapng.add(0, 2'000'001, kFrame);
  pcapng.add(1, 2'000'002'000, kFrame);
  pcapng.add(2, 2'001, kFrame);
  Octets bytes = pcapng.bytes();
  auto file = openBytes(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file.value().next()->time.count(), 2'000'001'000);
  EXPECT_EQ(file.value().next()->time.count(), 2'000'002'000);
  EXPECT_EQ(file.value().next()->time.count(), 2'001'000'000);
}

TEST(CaptureFile, Filter_MarksFramesThatPass) {
  test::PcapFile pcap;
  pcap.add(1, kFrame);
  pcap.add(2, test::udpDatagram({host(2), 1}, {host(3), 2}, Octets(4)));
  Octets bytes = pcap.bytes();
  auto file = openBytes(bytes, "udp");
  EXPECT_FALSE(file.value().next()->passesFilter);
  EXPECT_TRUE(file.value().next()->passesFilter);
  const auto wrong = openBytes(bytes, "no such word");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("--filter"), std::string::npos);
}

// All frames before the cut, then a fault that counts them; never a crash, never a hang.
void cutEverywhere(const Octets& whole, const std::vector<std::size_t>& frameEnds) {
  for (std::size_t length = 1; length < whole.size(); ++length) {
    Octets cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    auto file = openBytes(cut);
    const auto complete = static_cast<std::uint64_t>(
        std::count_if(frameEnds.begin(), frameEnds.end(), [&](auto end) { return end <= length; }));
    if (!file.ok()) {
      EXPECT_EQ(complete, 0u) << length;
      continue;
    }
    std::uint64_t frames = 0;
    while (file.value().next()) ++frames;
    EXPECT_EQ(frames, complete) << length;
    const bool between = std::find(frameEnds.begin(), frameEnds.end(), length) != frameEnds.end();
    if (frames > 0) {
      EXPECT_EQ(file.value().fault().has_value(), !between) << length;
    }
    if (file.value().fault()) {
      EXPECT_EQ(file.value().fault()->frames, frames);
      EXPECT_FALSE(file.value().fault()->what.empty());
      EXPECT_LE(file.value().fault()->offset, static_cast<std::int64_t>(length));
    }
  }
}

TEST(CaptureFile, PcapCutAtEveryByte_GivesTheFramesBefore) {
  test::PcapFile pcap;
  std::vector<std::size_t> ends;
  for (std::uint64_t i = 0; i < 3; ++i) {
    pcap.add(i, kFrame);
    ends.push_back(pcap.bytes().size());
  }
  cutEverywhere(pcap.bytes(), ends);
}

TEST(CaptureFile, PcapngCutAtEveryByte_GivesTheFramesBefore) {
  test::PcapngFile pcapng;
  pcapng.addInterface(1, 9);
  std::vector<std::size_t> ends;
  for (std::uint64_t i = 0; i < 3; ++i) {
    pcapng.add(0, i, kFrame);
    ends.push_back(pcapng.bytes().size());
  }
  cutEverywhere(pcapng.bytes(), ends);
}

TEST(CaptureFile, LengthsThatLie_AreAFault) {
  test::PcapFile pcap;
  pcap.add(1, kFrame);
  pcap.add(2, kFrame);
  Octets bytes = pcap.bytes();
  for (int i = 0; i < 4; ++i)
    bytes[24 + 16 + kFrame.size() + 8 + static_cast<std::size_t>(i)] = 0xff;  // the second one's kept length
  auto file = openBytes(bytes);
  EXPECT_TRUE(file.value().next().has_value());
  EXPECT_FALSE(file.value().next().has_value());
  ASSERT_TRUE(file.value().fault().has_value());
  EXPECT_EQ(file.value().fault()->frames, 1u);
}

TEST(CaptureFile, UnknownLinkType_IsRefusedByName) {
  test::PcapFile pcap(105);  // IEEE802_11
  Octets bytes = pcap.bytes();
  const auto file = openBytes(bytes);
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.error().message.find("IEEE802_11"), std::string::npos) << file.error().message;
}

TEST(CaptureFile, NoCapture_IsSaidInOneLine) {
  Octets text = test::octets("this is a text, not a capture, and long enough for any header");
  const auto file = openBytes(text);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().message.find('\n'), std::string::npos);
  EXPECT_NE(CaptureFile::open("/no/such/file", "").error().message.find("No such file"), std::string::npos);
}

}  // namespace
}  // namespace gloo_bypass::capture
