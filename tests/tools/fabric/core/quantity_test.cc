// Quantities with units.
#include "tools/fabric/core/quantity.h"

#include <gtest/gtest.h>

#include <string>

namespace gloo_bypass::fabric {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

Result<Duration> duration(std::string_view text) { return parseDuration(text, Duration{0}, std::chrono::hours(1)); }

TEST(Quantity, Duration_IsReadInEveryUnit) {
  EXPECT_EQ(duration("7ns").value(), nanoseconds(7));
  EXPECT_EQ(duration("1.5us").value(), nanoseconds(1'500));
  EXPECT_EQ(duration("300ms").value(), milliseconds(300));
  EXPECT_EQ(duration("300 ms").value(), milliseconds(300));
  EXPECT_EQ(duration("0s").value(), Duration{0});
  EXPECT_EQ(duration("0.25min").value(), std::chrono::seconds(15));
  EXPECT_EQ(duration("1h").value(), std::chrono::hours(1));
}

TEST(Quantity, Rate_IsReadInBitsAndBytes) {
  EXPECT_EQ(parseRate("50Mbit/s").value(), 50'000'000u);
  EXPECT_EQ(parseRate("1kbit/s").value(), 1'000u);
  EXPECT_EQ(parseRate("1.5Gbit/s").value(), 1'500'000'000u);
  EXPECT_EQ(parseRate("1GB/s").value(), 8'000'000'000u);
  EXPECT_EQ(parseRate("100Pbit/s").value(), 100'000'000'000'000'000u);
  EXPECT_EQ(parseRate("unlimited").value(), 0u);
}

TEST(Quantity, Bytes_AreReadInPowersOf1000And1024) {
  EXPECT_EQ(parseBytes("24B", 0, 100).value(), 24u);
  EXPECT_EQ(parseBytes("1MiB", 0, 1 << 20).value(), 1u << 20);
  EXPECT_EQ(parseBytes("1MB", 0, 1 << 20).value(), 1'000'000u);
}

TEST(Quantity, Percentage_IsAProbability) {
  EXPECT_DOUBLE_EQ(parsePercentage("0.1%").value(), 0.001);
  EXPECT_DOUBLE_EQ(parsePercentage("100 %").value(), 1);
  EXPECT_DOUBLE_EQ(parsePercentage("0%").value(), 0);
}

TEST(Quantity, Metres_AreReadInKilometres) { EXPECT_DOUBLE_EQ(parseMetres("4800km", 1, 1e9).value(), 4.8e6); }

TEST(Quantity, Faults_SayWhatIsWrongAndWhatIsAllowed) {
  const std::string durations = "give a number and ns, us, ms, s, min or h, such as \"100ms\"";
  EXPECT_EQ(duration("100").error().message, "has no unit; " + durations);
  EXPECT_EQ(duration("-1ms").error().message, "is negative; " + durations);
  for (const char* const text :
       {"",       "ms",      "fast", "nan",   "inf", "infs",  "+1ms", "-",     "-ms",  "1e3ms",
        "0x10ms", "1 000ms", "1ms2", "1  ms", "1MS", "1,5ms", ".5ms", "--1ms", " 1ms", "1ms "}) {
    EXPECT_EQ(duration(text).error().message, "is not a duration; " + durations) << '"' << text << '"';
  }
  EXPECT_EQ(duration(std::string(400, '9') + "ms").error().message, "is out of range; " + durations);
  EXPECT_EQ(duration("61min").error().message, "is outside what is allowed, 0 s to 3600 s");
  EXPECT_EQ(duration("99999999999999999999h").error().message, "is outside what is allowed, 0 s to 3600 s");
  EXPECT_EQ(parsePercentage("101%").error().message, "is outside what is allowed, 0% to 100%");
  EXPECT_EQ(parsePercentage("0.5").error().message, "has no unit; give a number and %, such as \"0.1%\"");
  EXPECT_EQ(parseBytes("2MiB", 1, 1 << 20).error().message, "is outside what is allowed, 1 B to 1 MiB");
  const std::string rates =
      "bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s, Pbit/s, B/s, kB/s, MB/s or GB/s, such as \"50Mbit/s\", or \"unlimited\"";
  EXPECT_EQ(parseRate("-5Mbit/s").error().message, "is negative; give a number and " + rates);
  EXPECT_EQ(parseRate("50Mbps").error().message, "is not a rate; give a number and " + rates);
  for (const char* const text : {"0bit/s", "999bit/s", "101Pbit/s"}) {
    EXPECT_EQ(parseRate(text).error().message, "is outside what is allowed, 1 kbit/s to 100 Pbit/s, or \"unlimited\"")
        << text;
  }
}

TEST(Quantity, Texts_AreShortAndAreReadBack) {
  EXPECT_EQ(durationText(milliseconds(300)), "300 ms");
  EXPECT_EQ(durationText(Duration{0}), "0 s");
  EXPECT_EQ(durationText(nanoseconds(1'500)), "1.5 us");
  EXPECT_EQ(rateText(0), "unlimited");
  EXPECT_EQ(rateText(12'500'000), "12.5 Mbit/s");
  EXPECT_EQ(bytesText(1 << 20), "1 MiB");
  EXPECT_EQ(bytesText(1'000), "1 kB");
  EXPECT_EQ(bytesText(0), "0 B");
  EXPECT_EQ(percentageText(0.001), "0.1 %");
  for (const std::int64_t each : {1, 999, 1'000, 1'001, 250'000, 5'000'000}) {
    EXPECT_EQ(duration(durationText(microseconds(each))).value(), microseconds(each));
    EXPECT_EQ(parseRate(rateText(static_cast<std::uint64_t>(each) * 1'000)).value(),
              static_cast<std::uint64_t>(each) * 1'000);
  }
}

}  // namespace
}  // namespace gloo_bypass::fabric
