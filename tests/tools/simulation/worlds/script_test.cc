// Scripts as text: both ways, and what is refused.
#include "tools/simulation/worlds/script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tools/simulation/worlds/generator.h"

namespace gloo_bypass::sim {
namespace {

using testing::HasSubstr;

TEST(Script, OfRandomWorlds_ReadsBackAsItself) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    const Script script = generateScript(seed);
    const auto again = parseScript(textOf(script));
    ASSERT_TRUE(again.ok()) << "seed " << seed << ": " << again.error().message;
    ASSERT_TRUE(again.value() == script) << "seed " << seed << "\n" << textOf(script) << "\n" << textOf(again.value());
  }
}

TEST(Script, LinesOfEachKind_AreRead) {
  const auto script = parseScript(
      "# a comment\n"
      "world seed=7 ranks=3 plant=flip\n"
      "settings rank=1 congestion=bbr fec=on checksum=off\n"
      "pair from=0 to=2 rails=2 datagram-bytes=8972\n"
      "edge from=2 to=0 rail=1 delay=5ms loss=0.1%\n"
      "message from=1 to=2 kind=announced length=1000 send-at=3us\n"
      "fault kind=pause rank=2 at=1ms for=2s\n");
  ASSERT_TRUE(script.ok()) << script.error().message;
  const Script& world = script.value();
  EXPECT_EQ(world.plant, Plant::kFlip);
  EXPECT_EQ(world.rank(1).congestion, CongestionControl::kBbr);
  EXPECT_EQ(world.pair(2, 0).rails, 2);
  EXPECT_EQ(world.edge(2, 0, 1).delay, std::chrono::milliseconds(5));
  EXPECT_DOUBLE_EQ(world.edge(2, 0, 1).loss, 0.001);
  EXPECT_EQ(world.edge(0, 2, 1).delay, std::chrono::microseconds(50)) << "no line, so the default";
  EXPECT_EQ(world.messages.at(0).kind, KeyKind::kAnnounced);
  EXPECT_EQ(world.faults.at(0).length, std::chrono::seconds(2));
}

std::string refusal(const std::string& text) {
  const auto script = parseScript(text);
  return script.ok() ? "accepted" : script.error().message;
}

TEST(Script, WrongLines_AreRefusedByNumber) {
  EXPECT_THAT(refusal("world\nrank 3\n"), HasSubstr("line 2: 'rank' is none of world settings"));
  EXPECT_THAT(refusal("message size=3\n"), HasSubstr("line 1: 'size' is none of from to kind"));
  EXPECT_THAT(refusal("message length=3kB\n"), HasSubstr("length: '3kB': is a whole number"));
  EXPECT_THAT(refusal("fault kind=storm\n"), HasSubstr("is one of edge, mtu, pause"));
  EXPECT_THAT(refusal("edge delay=5\n"), HasSubstr("has no unit"));
  EXPECT_THAT(refusal("world ranks=1\n"), HasSubstr("2 to 16 ranks"));
  EXPECT_THAT(refusal("message from=0 to=2\n"), HasSubstr("names a rank that the world does not have"));
  EXPECT_THAT(refusal("pair rails=9\n"), HasSubstr("1 to 4 rails"));
  EXPECT_THAT(refusal("operation type=int64 reduction=average\n"), HasSubstr("reduces what it cannot"));
  EXPECT_THAT(refusal("world algorithms=all-reduce=magic\n"), HasSubstr("magic"));
}

}  // namespace
}  // namespace gloo_bypass::sim
