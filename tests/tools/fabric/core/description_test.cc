// The meaning of a description: hosts, ports, precedence of entries for an edge, flags. Its faults:
// description_faults_test.cc.
#include "tools/fabric/core/description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/tools/fabric/core/descriptions.h"
#include "tools/fabric/core/description_file.h"

namespace gloo_bypass::fabric {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::string_view kTwoSites = R"(
  [[host]]
  name = "a"
  site = "west"
  [[host]]
  name = "b"
  site = "west"
  [[host]]
  name = "c"
  site = "east"
  [[host]]
  name = "d"
)";

std::string twoSitesAnd(std::string_view rest) { return std::string(kTwoSites) + std::string(rest); }

TEST(Description, RanksAlone_GiveNamesAddressesAndPlainEdges) {
  const Description description = good("ranks = 4");
  ASSERT_EQ(description.hosts.size(), 4u);
  EXPECT_EQ(description.seed, 1u);
  EXPECT_EQ(description.hosts[3].name, "r3");
  EXPECT_EQ(ipv4Text(description.hosts[3].ipv4), "10.77.0.5");
  EXPECT_EQ(description.hosts[3].prefixLength, 24u);
  EXPECT_EQ(description.hosts[3].port.kind, PortKind::kUnspecified);
  EXPECT_FALSE(description.hosts[3].mac.has_value());
  EXPECT_EQ(description.edges.size(), 16u);
  EXPECT_EQ(description.edge(0, 1).rateBitsPerSecond, 0u);
  EXPECT_EQ(description.edge(0, 1).queueBytes, 1u << 20);
  EXPECT_EQ(description.edgeName(3, 2), "r3->r2");
}

TEST(Description, Hosts_HaveWhatTheyAreGiven) {
  const Description description = good(R"(
    seed = 9
    [[host]]
    name = "a"
    site = "west"
    ipv4 = "10.1.2.3/16"
    mac = "02:00:00:00:00:0A"
    memif = "/run/f/a.sock"
    [[host]]
    name = "b"
    tap = "fab1"
    namespace = "rank1"
    [[host]]
    name = "c"
    interface = "veth2"
    [[host]]
    name = "d"
    namespace = "rank3"
  )");
  EXPECT_EQ(description.seed, 9u);
  const std::vector<HostDescription>& hosts = description.hosts;
  EXPECT_EQ(hosts[0].site, "west");
  EXPECT_EQ(ipv4Text(hosts[0].ipv4), "10.1.2.3");
  EXPECT_EQ(hosts[0].prefixLength, 16u);
  EXPECT_EQ(*hosts[0].mac, (std::array<std::uint8_t, 6>{2, 0, 0, 0, 0, 10}));
  EXPECT_EQ(hosts[0].port.kind, PortKind::kMemif);
  EXPECT_EQ(hosts[0].port.name, "/run/f/a.sock");
  EXPECT_EQ(hosts[1].port.kind, PortKind::kTap);
  EXPECT_EQ(hosts[1].port.networkNamespace, "rank1");
  EXPECT_EQ(ipv4Text(hosts[1].ipv4), "10.1.0.3") << "by rank, in the network of the address that was given";
  EXPECT_EQ(hosts[2].port.kind, PortKind::kInterface);
  EXPECT_EQ(hosts[3].port.kind, PortKind::kUnspecified);
  EXPECT_EQ(hosts[3].port.networkNamespace, "rank3");
}

TEST(Description, EdgeEntries_MoreExactOneDecidesWhereverItStands) {
  const Description description = good(twoSitesAnd(R"(
    [defaults]
    delay = "1us"
    loss = "1%"
    [[edge]]
    from = "a"
    to = "c"
    delay = "5us"
    [[edge]]
    from = "west"
    to = "east"
    delay = "4us"
    rate = "1Gbit/s"
    [[edge]]
    from = "a"
    to = "*"
    delay = "3us"
    [[edge]]
    from = "*"
    to = "east"
    delay = "2us"
  )"));
  EXPECT_EQ(description.edge(0, 2).delay, microseconds(5)) << "two hosts";
  EXPECT_EQ(description.edge(0, 2).rateBitsPerSecond, 1'000'000'000u) << "each setting for itself";
  EXPECT_EQ(description.edge(1, 2).delay, microseconds(4)) << "two sites";
  EXPECT_EQ(description.edge(0, 1).delay, microseconds(3)) << "host and *";
  EXPECT_EQ(description.edge(3, 2).delay, microseconds(2)) << "* and site";
  EXPECT_EQ(description.edge(2, 0).delay, microseconds(1)) << "directed";
  EXPECT_DOUBLE_EQ(description.edge(0, 2).loss, 0.01);
}

TEST(Description, EdgeEntriesEquallyExact_LaterOneDecides) {
  const Description description = good(twoSitesAnd(R"(
    [[edge]]
    from = "west"
    to = "east"
    delay = "4us"
    [[edge]]
    from = "a"
    to = "*"
    delay = "3us"
  )"));
  EXPECT_EQ(description.edge(0, 2).delay, microseconds(3)) << "1 + 1 points against 2 + 0";
  EXPECT_EQ(description.edge(1, 2).delay, microseconds(4));
}

TEST(Description, Both_IsTheWayBackToo) {
  const Description description = good("ranks = 3", {{"edge", "from=r0,to=r1,both=true,delay=7ms"}});
  EXPECT_EQ(description.edge(0, 1).delay, milliseconds(7));
  EXPECT_EQ(description.edge(1, 0).delay, milliseconds(7));
  EXPECT_EQ(description.edge(1, 2).delay, Duration{0});
}

TEST(Description, Selectors_MayBeRanks) {
  const Description description = good("ranks = 4\n[[edge]]\nfrom = 3\nto = \"2\"\ndelay = \"300ms\"");
  EXPECT_EQ(description.edge(3, 2).delay, milliseconds(300));
  EXPECT_EQ(description.edge(2, 3).delay, Duration{0});
}

TEST(Description, FindHost_TakesNamesBeforeRanks) {
  const Description description = good("", {{"host", "name=x"}, {"host", "name=0"}});
  EXPECT_EQ(description.findHost("x"), 0u);
  EXPECT_EQ(description.findHost("0"), 1u);
  EXPECT_EQ(description.findHost("1"), 1u);
  for (const char* const text : {"", "2", "-1", "y", "1x", "99999999999999999999"})
    EXPECT_EQ(description.findHost(text), std::nullopt);
}

TEST(Description, SiteToItself_IsItsHostsWithEachOther) {
  const Description description = good(twoSitesAnd("[[edge]]\nfrom = \"west\"\nto = \"west\"\ndelay = \"1ms\""));
  EXPECT_EQ(description.edge(0, 1).delay, milliseconds(1));
  EXPECT_EQ(description.edge(1, 0).delay, milliseconds(1));
  EXPECT_EQ(description.edge(0, 2).delay, Duration{0});
}

TEST(Description, Ring_AddsTheShorterArcToTheDefaultDelay) {
  const Description description = good("ranks = 23", {{"ring", "length=4800km"}, {"defaults", "delay=28us"}});
  const double neighbourUs = 4'800.0 * 5 / 23;
  const auto delayUs = [&](std::size_t from, std::size_t to) {
    return std::chrono::duration<double, std::micro>(description.edge(from, to).delay).count();
  };
  EXPECT_NEAR(delayUs(0, 1), 28 + neighbourUs, 0.001);
  EXPECT_NEAR(delayUs(1, 0), 28 + neighbourUs, 0.001);
  EXPECT_NEAR(delayUs(0, 22), 28 + neighbourUs, 0.001) << "the ring closes";
  EXPECT_NEAR(delayUs(0, 11), 28 + 11 * neighbourUs, 0.001);
  EXPECT_NEAR(delayUs(0, 12), 28 + 11 * neighbourUs, 0.001);
}

TEST(Description, RingOfSites_HostsOfASiteStandTogether) {
  const Description description = good(twoSitesAnd("[ring]\nlength = \"300km\""));
  EXPECT_EQ(description.edge(0, 1).delay, Duration{0});
  EXPECT_EQ(description.edge(0, 2).delay, microseconds(500)) << "three sites: west, east and d alone";
  EXPECT_EQ(description.edge(1, 3).delay, microseconds(500));
}

TEST(Description, Flags_WeighMoreThanTheFile) {
  const std::string file = R"(
    seed = 1
    ranks = 4
    [defaults]
    delay = "1ms"
    rate = "1Gbit/s"
    [[host]]
    name = "r1"
    tap = "fab1"
    namespace = "ns1"
    [[edge]]
    from = "r3"
    to = "r2"
    delay = "300ms"
  )";
  const Description description = good(file, {{"seed", "7"},
                                              {"defaults", "delay=2ms"},
                                              {"host", "name=r0, memif=/run/r0.sock"},
                                              {"edge", "from=r3,to=r2,delay=100ms,loss=1%"}});
  EXPECT_EQ(description.seed, 7u);
  EXPECT_EQ(description.edge(0, 1).delay, milliseconds(2));
  EXPECT_EQ(description.edge(0, 1).rateBitsPerSecond, 1'000'000'000u);
  EXPECT_EQ(description.edge(3, 2).delay, milliseconds(100));
  EXPECT_DOUBLE_EQ(description.edge(3, 2).loss, 0.01);
  EXPECT_EQ(description.hosts[0].port.name, "/run/r0.sock");
  EXPECT_EQ(description.hosts[1].port.name, "fab1");
  EXPECT_EQ(good(file, {{"host", "name=r1,tap=other"}}).hosts[1].port.name, "other");
  EXPECT_EQ(good(file, {{"ranks", "5"}}).hosts.size(), 5u);
}

TEST(Description, FlagsAlone_AreADescription) {
  const Description description = good("", {{"host", "name=x,ipv4=10.9.0.1/30"},
                                            {"host", "name=y,ipv4=10.9.0.2/30"},
                                            {"event", "at=1s,from=x,to=y,down=200ms"}});
  EXPECT_EQ(description.hosts.size(), 2u);
  EXPECT_EQ(description.events.size(), 1u);
}

TEST(Description, Events_AreInTheOrderOfTime) {
  const Description description = good("ranks = 2", {{"event", "at=9s,from=r0,to=r1,delay=9ms"},
                                                     {"event", "at=500ms,from=*,to=*,down=200ms"},
                                                     {"event", "at=1s,for=2s,from=r0,to=r1,delay=1ms"}});
  ASSERT_EQ(description.events.size(), 3u);
  EXPECT_EQ(description.events[0].at, milliseconds(500));
  EXPECT_EQ(description.events[0].lasts, milliseconds(200));
  EXPECT_EQ(description.events[0].change.up, false);
  EXPECT_TRUE(description.events[0].edges.contains({1, 0}));
  EXPECT_FALSE(description.events[0].edges.contains({1, 1}));
  EXPECT_EQ(description.events[1].lasts, std::chrono::seconds(2));
  EXPECT_EQ(description.events[2].lasts, std::nullopt);
  EXPECT_FALSE(description.events[2].edges.contains({1, 0}));
}

TEST(Description, MakeEdge_HasItsModelAndAStreamOfItsOwn) {
  const Description description = good("ranks = 3\n[defaults]\nloss = \"50%\"");
  EXPECT_EQ(description.makeEdge(1, 0).model(), description.edge(1, 0));
  const auto fates = [&](std::size_t from, std::size_t to) {
    EdgeEmulator edge = description.makeEdge(from, to);
    std::string text;
    for (int i = 0; i < 64; ++i) text += edge.offer(TimePoint{}, 100).deliveryCount == 0 ? '0' : '1';
    return text;
  };
  EXPECT_EQ(fates(0, 1), fates(0, 1));
  EXPECT_NE(fates(0, 1), fates(1, 0));
  EXPECT_NE(fates(0, 1), fates(0, 2));
}

TEST(Description, MostHosts_Work) {
  const Description description =
      good("ranks = 256", {{"network", "10.8.0.0/16"}, {"edge", "from=255,to=*,both=true,delay=1ms"}});
  EXPECT_EQ(description.edge(255, 0).delay, milliseconds(1));
  EXPECT_EQ(description.edge(7, 255).delay, milliseconds(1));
}

TEST(DescriptionFile, Examples_AreAccepted) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(FABRIC_EXAMPLES)) {
    const Result<Description> description = loadDescription(entry.path().string(), {});
    EXPECT_TRUE(description.ok()) << description.error().message;
    ++count;
  }
  EXPECT_GE(count, 4u);
  const Result<Description> study =
      loadDescription(FABRIC_EXAMPLES "/edge-300ms.toml", {{"edge", "from=r3,to=r2,delay=100ms"}});
  ASSERT_TRUE(study.ok());
  EXPECT_EQ(study.value().edge(3, 2).delay, milliseconds(100));
  EXPECT_EQ(study.value().edge(2, 3).delay, microseconds(20));
}

TEST(DescriptionFile, ExampleOfEverySetting_HasEveryKey) {
  std::ifstream file(FABRIC_EXAMPLES "/every-setting.toml");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const std::string& key : edgeSettingNames()) EXPECT_NE(text.find("\n" + key + " = "), std::string::npos) << key;
}

TEST(DescriptionFile, Missing_SaysSo) {
  const Result<Description> missing = loadDescription("/nowhere/f.toml", {});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(missing.error().message, "fabric description /nowhere/f.toml cannot be read: No such file or directory");
  const Result<Description> folder = loadDescription(FABRIC_EXAMPLES, {});
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(folder.error().message, testing::HasSubstr("is it a directory?"));
}

TEST(DescriptionFile, NoPath_IsFlagsAlone) {
  EXPECT_TRUE(loadDescription("", {{"ranks", "2"}}).ok());
  EXPECT_EQ(loadDescription("", {}).error().message,
            "flags: 0 hosts; a fabric has at least 2: give [[host]] entries, or ranks = 4");
}

}  // namespace
}  // namespace gloo_bypass::fabric
