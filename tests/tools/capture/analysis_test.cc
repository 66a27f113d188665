// Figures of made-up captures, worked out by hand.
#include "tools/capture/analysis.h"

#include <gtest/gtest.h>

#include "tests/tools/capture/capture_builder.h"
#include "tests/tools/capture/operation_frames.h"
#include "tools/capture/step_statistics.h"
#include "transport/wire/step_marker.h"

namespace gloo_bypass::capture {
namespace {

using std::chrono::milliseconds;
using test::Endpoint;
using test::host;
using test::Octets;

constexpr Endpoint kA{host(2), 5000}, kB{host(3), 6000};
constexpr std::size_t kHeaders = 14 + 20 + 20;

class Feed {
 public:
  explicit Feed(AnalysisSettings settings = {}) : analysis(settings) {}
  void add(CaptureTime time, const Octets& frame) {
    analysis.add(time, dissect(LinkLayer::kEthernet, std::as_bytes(std::span(frame)), frame.size()));
  }
  // A segment in a frame of this many bytes.
  void segment(CaptureTime time, std::size_t frameBytes, Endpoint from = kA, Endpoint to = kB) {
    add(time, test::tcpSegment(from, to, sequence_, frameBytes - kHeaders));
    sequence_ += static_cast<std::uint32_t>(frameBytes - kHeaders);
  }
  void marker(CaptureTime time, std::uint64_t step, bool last, bool text = true, std::uint16_t identification = 0) {
    add(time, test::markerFrame(step, last, text, identification));
  }
  const MarkerCounters& markers() const { return analysis.steps().counters(); }
  const std::vector<StepWindow>& steps() const { return analysis.steps().steps(); }

  Analysis analysis;

 private:
  std::uint32_t sequence_ = 1;
};

TEST(Analysis, TwoSteps_HaveBytesTimeAndPeak) {
  Feed feed;
  feed.segment(milliseconds(0), 900);  // before the first marker
  feed.marker(milliseconds(1000), 1, false);
  feed.segment(milliseconds(1100), 1000);
  feed.segment(milliseconds(1200), 500, kB, kA);
  feed.marker(milliseconds(1500), 1, true);
  feed.segment(milliseconds(1600), 300);  // between the steps
  feed.marker(milliseconds(2000), 2, false);
  feed.segment(milliseconds(2100), 3500);
  feed.marker(milliseconds(3000), 2, true);
  feed.segment(milliseconds(4000), 700);  // after the last one
  feed.analysis.finish();
  ASSERT_EQ(feed.steps().size(), 2u);
  EXPECT_EQ(feed.steps()[0].bytes, 1500u);
  EXPECT_EQ(feed.steps()[0].frames, 2u);
  EXPECT_EQ(feed.steps()[1].bytes, 3500u);
  const auto statistics = stepStatistics(feed.analysis).value();
  EXPECT_EQ(statistics.bytes, (Spread{1500, 2000, 2500, 3000, 3500}));
  EXPECT_EQ(statistics.seconds, (Spread{0.5, 0.625, 0.75, 0.875, 1.0}));
  EXPECT_DOUBLE_EQ(statistics.bitsPerSecond[0], 1500 * 8 / 0.5);
  EXPECT_DOUBLE_EQ(statistics.bitsPerSecond[4], 3500 * 8 / 1.0);
  // From the first marker to the last: 1500 + 300 + 3500 bytes in 2 s.
  EXPECT_DOUBLE_EQ(trainingBitsPerSecond(feed.analysis).value(), 5300 * 8 / 2.0);
  EXPECT_DOUBLE_EQ(captureBitsPerSecond(feed.analysis).value(), 6900 * 8 / 4.0);
  EXPECT_EQ(bytesOf(feed.analysis.before()), 900u);
  EXPECT_EQ(bytesOf(feed.analysis.training()), 5300u);
  EXPECT_EQ(bytesOf(feed.analysis.after()), 700u);
}

TEST(Analysis, FramesWithoutIpv4Addresses_CountInTheTrainingsRate) {
  Feed feed;
  feed.marker(milliseconds(1000), 1, false);
  feed.segment(milliseconds(1100), 1000);
  feed.add(milliseconds(1200), test::ethernet(Octets(1986, 0), 0x86dd));  // IPv6: 2000 bytes
  feed.marker(milliseconds(2000), 1, true);
  feed.analysis.finish();
  EXPECT_EQ(feed.steps().at(0).bytes, 3000u);
  EXPECT_EQ(bytesOf(feed.analysis.training()), 3000u);
  EXPECT_DOUBLE_EQ(trainingBitsPerSecond(feed.analysis).value(), 3000 * 8 / 1.0);
}

TEST(Analysis, Directions_HaveTheirShareOfEachStep) {
  Feed feed;
  for (std::uint64_t step = 1; step <= 2; ++step) {
    const auto at = milliseconds(1000 * static_cast<int>(step));
    feed.marker(at, step, false);
    feed.segment(at + milliseconds(10), 1000 * step);
    if (step == 2) feed.segment(at + milliseconds(20), 400, kB, kA);
    feed.marker(at + milliseconds(100), step, true);
  }
  feed.analysis.finish();
  ASSERT_EQ(feed.analysis.trackedDirections().size(), 2u);
  EXPECT_EQ(feed.analysis.trackedDirections()[1], Direction(host(3), host(2)));
  EXPECT_EQ(stepStatistics(feed.analysis, 0).value().bytes[2], 1500);
  EXPECT_EQ(stepStatistics(feed.analysis, 1).value().bytes, (Spread{0, 100, 200, 300, 400}));
  EXPECT_EQ(feed.analysis.training().directions().at({host(2), host(3)}).frames, 2u);
}

TEST(Analysis, PublishedMarkersWithoutText_AreBeginAndEndInTurn) {
  Feed feed;
  for (std::uint64_t step = 0; step < 3; ++step) {
    feed.marker(milliseconds(100 * step), step, false, false);
    feed.segment(milliseconds(100 * step + 10), 200);
    feed.marker(milliseconds(100 * step + 50), step, true, false);
  }
  feed.analysis.finish();
  ASSERT_EQ(feed.steps().size(), 3u);
  for (std::uint64_t step = 0; step < 3; ++step) {
    EXPECT_TRUE(feed.steps()[step].complete);
    EXPECT_EQ(feed.steps()[step].step, step);
    EXPECT_EQ(feed.steps()[step].bytes, 200u);
  }
}

TEST(Analysis, MarkersSeenTwice_CountOnce) {
  for (const bool text : {true, false}) {
    Feed feed;
    for (int copy = 0; copy < 2; ++copy) feed.marker(milliseconds(copy), 5, false, text, 77);
    feed.segment(milliseconds(3), 100);
    for (int copy = 0; copy < 2; ++copy) feed.marker(milliseconds(10 + copy), 5, true, text, 78);
    feed.analysis.finish();
    ASSERT_EQ(feed.steps().size(), 1u) << text;
    EXPECT_TRUE(feed.steps()[0].complete);
    EXPECT_EQ(feed.steps()[0].bytes, 100u);
    EXPECT_EQ(feed.markers().repeated, 2u);
    EXPECT_EQ(feed.analysis.totals().frames, 1u);
  }
}

TEST(Analysis, LostMarkers_LeaveTheOtherStepsRight) {
  Feed feed;
  feed.marker(milliseconds(0), 1, true);     // the capture began in step 1
  feed.marker(milliseconds(100), 2, false);  // its end is lost
  feed.segment(milliseconds(110), 100);
  feed.marker(milliseconds(200), 3, false);
  feed.segment(milliseconds(210), 400);
  feed.marker(milliseconds(300), 3, true);
  feed.marker(milliseconds(400), 4, false);  // the capture ended in step 4
  feed.analysis.finish();
  EXPECT_EQ(feed.markers().withoutBegin, 1u);
  EXPECT_EQ(feed.markers().withoutEnd, 2u);
  const auto statistics = stepStatistics(feed.analysis).value();
  EXPECT_EQ(statistics.steps, 1u);
  EXPECT_EQ(statistics.bytes[2], 400);
}

TEST(Analysis, StepsThatWrapThePort_GoOn) {
  Feed feed;
  for (const bool text : {false, true}) {
    for (std::uint64_t step = 25'534; step <= 25'538; ++step) {
      feed.marker(milliseconds(step), step, false, text);
      feed.marker(milliseconds(step) + std::chrono::microseconds(500), step, true, text);
    }
  }
  ASSERT_EQ(feed.steps().size(), 10u);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(feed.steps()[i].step, 25'534 + i % 5);
  EXPECT_EQ(wire::stepMarkerSourcePort(25'535), 65'535);
  EXPECT_EQ(wire::stepMarkerSourcePort(25'536), 40'000);
}

TEST(Analysis, TimeGoingBackwards_IsCountedAndLeavesTheStepOut) {
  Feed feed;
  feed.marker(milliseconds(1000), 1, false);
  feed.segment(milliseconds(900), 100);
  feed.marker(milliseconds(950), 1, true);
  feed.analysis.finish();
  EXPECT_EQ(feed.markers().backwards, 1u);
  EXPECT_EQ(feed.analysis.totals().backwards, 1u);
  EXPECT_FALSE(stepStatistics(feed.analysis).has_value());
  EXPECT_EQ(feed.analysis.series().bins()[0], 100u);
}

TEST(Analysis, NoMarkers_AllIsBefore) {
  Feed feed;
  feed.segment(milliseconds(0), 100);
  feed.analysis.finish();
  EXPECT_FALSE(stepStatistics(feed.analysis).has_value());
  EXPECT_FALSE(trainingBitsPerSecond(feed.analysis).has_value());
  EXPECT_FALSE(captureBitsPerSecond(feed.analysis).has_value());
  EXPECT_EQ(bytesOf(feed.analysis.before()), 100u);
}

TEST(Analysis, ByteKinds_AddUpToAllBytes) {
  Feed feed;
  feed.add(milliseconds(0), test::tcpSegment(kA, kB, 100, 0, 0x02));  // SYN takes a number
  feed.add(milliseconds(1), test::tcpSegment(kA, kB, 101, 1000));
  feed.add(milliseconds(2), test::tcpSegment(kA, kB, 1101, 1000));
  feed.add(milliseconds(3), test::tcpSegment(kA, kB, 601, 1000));  // half of it known
  feed.add(milliseconds(4), test::tcpSegment(kB, kA, 1, 0));       // an acknowledgement
  feed.add(milliseconds(5), test::ethernet(Octets(28), 0x0806));
  feed.add(milliseconds(6), Octets(5));
  feed.analysis.finish();
  const auto& totals = feed.analysis.totals();
  const auto of = [&](ByteKind kind) { return totals.bytesOfKind[static_cast<std::size_t>(kind)]; };
  EXPECT_EQ(of(ByteKind::kTcpPayload), 2000u);
  EXPECT_EQ(of(ByteKind::kTcpRepeated), 1000u);
  EXPECT_EQ(of(ByteKind::kHeaders), 4 * kHeaders);
  EXPECT_EQ(of(ByteKind::kAcknowledgements), kHeaders);
  EXPECT_EQ(of(ByteKind::kOther), 42u);
  EXPECT_EQ(of(ByteKind::kNotDissected), 5u);
  EXPECT_EQ(totals.cut, 1u);
  std::uint64_t sum = 0;
  for (const auto bytes : totals.bytesOfKind) sum += bytes;
  EXPECT_EQ(sum, totals.bytes);
}

TEST(Analysis, TcpSequenceNumbers_WrapWithoutRepetition) {
  Feed feed;
  feed.add(milliseconds(0), test::tcpSegment(kA, kB, 0xffffff00, 0x100));
  feed.add(milliseconds(1), test::tcpSegment(kA, kB, 0, 50));
  feed.add(milliseconds(2), test::tcpSegment(kA, kB, 0xffffff80, 0x90));  // over the wrap: 0x80 + 0x10 known
  feed.analysis.finish();
  EXPECT_EQ(feed.analysis.totals().bytesOfKind[static_cast<std::size_t>(ByteKind::kTcpRepeated)], 0x90u);
}

// A bit of the sequence number flipped on the way: the receiver drops that frame, and the others are no repetitions.
TEST(Analysis, DamagedSequenceNumber_MakesNoOtherFrameRepeated) {
  test::OperationSender sender(kA, kB, 1);
  Feed feed;
  for (int message = 1; message <= 4; ++message) {
    Octets frame = sender.message(7, 100, 100);
    if (message == 2) frame[14 + 20 + 8 + 27] ^= 0x40;  // the sequence number's highest byte
    feed.add(milliseconds(message), frame);
  }
  feed.analysis.finish();
  const auto& totals = feed.analysis.totals();
  EXPECT_EQ(totals.bytesOfKind[static_cast<std::size_t>(ByteKind::kBypassRepeated)], 0u);
  EXPECT_EQ(totals.bytesOfKind[static_cast<std::size_t>(ByteKind::kBypassPayload)], 400u);
}

TEST(Analysis, LongCapture_HasCoarserSeriesOfItsDirections) {
  Feed feed;
  std::uint64_t there = 0;
  for (int i = 0; i < 3'000; ++i) {
    feed.segment(milliseconds(100 * i), 100);
    there += 100;
  }
  feed.segment(milliseconds(0), 200, kB, kA);
  const auto& series = feed.analysis.trackedSeries();
  ASSERT_EQ(series.size(), 2u);
  EXPECT_EQ(series[0].interval(), milliseconds(200));
  EXPECT_EQ(series[0].bins().size(), 1'500u);
  std::uint64_t binned = 0;
  for (const auto bytes : series[0].bins()) binned += bytes;
  EXPECT_EQ(binned, there);
  EXPECT_EQ(series[1].bins(), std::vector<std::uint64_t>{200});
  EXPECT_EQ(feed.analysis.series().interval(), milliseconds(100));
}

TEST(TimeSeries, BytesFallIntoTheirIntervals) {
  TimeSeries series(milliseconds(100));
  series.add(milliseconds(0), 1);
  series.add(milliseconds(99), 2);
  series.add(milliseconds(100), 4);
  series.add(milliseconds(350), 8);
  series.add(milliseconds(-5), 16);
  EXPECT_EQ(series.bins(), (std::vector<std::uint64_t>{19, 4, 0, 8}));
}

TEST(TimeSeries, LongCapture_HasCoarserIntervalsAndAllBytes) {
  TimeSeries series(milliseconds(1));
  std::uint64_t sum = 0;
  for (int i = 0; i < 200'000; ++i) {
    series.add(milliseconds(i), 3);
    sum += 3;
  }
  EXPECT_EQ(series.interval(), milliseconds(4));
  EXPECT_LE(series.bins().size(), TimeSeries::kMaxBins);
  std::uint64_t binned = 0;
  for (const auto bytes : series.bins()) binned += bytes;
  EXPECT_EQ(binned, sum);
  EXPECT_EQ(series.bins()[7], 12u);
}

TEST(TimeSeries, ImpossibleTime_IsBounded) {
  TimeSeries series(std::chrono::nanoseconds(1));
  series.add(std::chrono::nanoseconds(5), 1);
  series.add(std::chrono::nanoseconds::max(), 1);
  EXPECT_LE(series.bins().size(), TimeSeries::kMaxBins);
  EXPECT_EQ(series.bins()[0], 1u);
}

TEST(StepMarker, Text_IsReadAsWritten) {
  for (const std::uint64_t step : {std::uint64_t{0}, std::uint64_t{25'536}, ~std::uint64_t{0}}) {
    for (const bool last : {false, true}) {
      const auto marker = wire::parseStepMarker(wire::stepMarkerText({step, last}));
      ASSERT_TRUE(marker.has_value());
      EXPECT_EQ(marker->step, step);
      EXPECT_EQ(marker->last, last);
    }
  }
  const std::string text = wire::stepMarkerText({12, true});
  for (std::size_t kept = 0; kept < text.size(); ++kept)
    EXPECT_FALSE(wire::parseStepMarker(text.substr(0, kept)).has_value());
  EXPECT_FALSE(wire::parseStepMarker("gloo-bypass step 99999999999999999999 first\n").has_value());
}

TEST(StepWindows_Bounds, DirectionsDoNotFitAnyMore_StepsAreLeftOutWhole) {
  constexpr std::size_t kFit = StepWindows::kMaxDirectionEntries / StepWindows::kMaxDirections;
  StepWindows windows;
  for (std::uint64_t step = 0; step < kFit + 10; ++step) {
    DissectedFrame marker;
    marker.sourcePort = wire::stepMarkerSourcePort(step);
    for (const std::uint16_t last : {1, 2}) {
      marker.identification = last;
      windows.onMarker(marker, std::chrono::microseconds(2 * step + last));
      for (std::size_t direction = 0; direction < StepWindows::kMaxDirections; ++direction)
        windows.onFrame(100, direction);
    }
  }
  ASSERT_EQ(windows.steps().size(), kFit);
  EXPECT_EQ(windows.counters().notKept, 10U);
  const StepWindow& last = windows.steps().back();
  EXPECT_EQ(last.directionsEnd - last.directionsBegin, StepWindows::kMaxDirections);
}

}  // namespace
}  // namespace gloo_bypass::capture
