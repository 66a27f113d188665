#include "transport/process/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "transport/base/printable.h"
#include "transport/process/back_ends.h"

namespace gloo_bypass {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string errorOf(std::vector<SettingText> texts) {
  const auto result = configurationFromTexts(texts);
  return result ? "" : result.error().message;
}

TEST(Settings_Table, EveryRow_HasUniqueNameUnitInNameAndText) {
  std::set<std::string> names;
  for (const Setting& setting : settings()) {
    EXPECT_TRUE(setting.name.starts_with(kSettingPrefix)) << setting.name;
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name << " appears twice";
    EXPECT_THAT(setting.allowed, Not(IsEmpty())) << setting.name;
    EXPECT_THAT(setting.description, Not(IsEmpty())) << setting.name;
    EXPECT_EQ(setting.description.find('|'), std::string::npos) << "breaks the Markdown table";
    if (setting.unit == "us" || setting.unit == "ms") {
      EXPECT_TRUE(setting.name.ends_with(setting.unit == "us" ? "_US" : "_MS")) << setting.name;
    }
  }
  EXPECT_GE(names.size(), 40u);
}

// Also of one that is not in this build.
TEST(Settings_Table, EveryBackEndsRows_AreInIt) {
  for (const BackEnd& backEnd : backEnds()) {
    ASSERT_FALSE(backEnd.settings().empty()) << backEnd.name;
    for (const Setting& row : backEnd.settings()) {
      EXPECT_EQ(std::ranges::count(settings(), row.name, &Setting::name), 1) << row.name;
    }
  }
}

TEST(Settings_Table, Defaults_AreAllowedAndSurviveTextAndBack) {
  const TransportConfig defaults;
  EXPECT_TRUE(validate(defaults).ok()) << validate(defaults).error().message;
  std::vector<SettingText> texts;
  for (const Setting& setting : settings()) texts.emplace_back(setting.name, setting.format(defaults));
  const auto again = configurationFromTexts(texts);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_THAT(differences(defaults, again.value()), IsEmpty());
}

// Every row writes a different field: a copied accessor would show here.
TEST(Settings_Table, OneValueChanged_ExactlyThatSettingDiffers) {
  const std::vector<SettingText> others = {{"GLOO_BYPASS_LINK", "netdev"},
                                           {"GLOO_BYPASS_NETWORK", "netdev"},
                                           {"GLOO_BYPASS_MEMIF_DIRECTORY", "/run/x"},
                                           {"GLOO_BYPASS_MEMIF_BUFFER_BYTES", "4096"},
                                           {"GLOO_BYPASS_MEMIF_LOG2_SLOTS", "3"},
                                           {"GLOO_BYPASS_NETDEV_DRIVER", "af_xdp"},
                                           {"GLOO_BYPASS_INTERFACE", "eth1"},
                                           {"GLOO_BYPASS_PCI_ADDRESS", "0000:00:04.0"},
                                           {"GLOO_BYPASS_IPV4", "10.0.0.2/24"},
                                           {"GLOO_BYPASS_GATEWAY", "10.0.0.1"},
                                           {"GLOO_BYPASS_UDP_PORT", "4711-4712"},
                                           {"GLOO_BYPASS_MTU", "9000"},
                                           {"GLOO_BYPASS_EAL_ARGUMENTS", "-l 1 --log-level 'a b'"},
                                           {"GLOO_BYPASS_HUGE_PAGES", "off"},
                                           {"GLOO_BYPASS_MEMORY_MIB", "128"},
                                           {"GLOO_BYPASS_SPIN_US", "0"},
                                           {"GLOO_BYPASS_ENGINE_CPU", "1"},
                                           {"GLOO_BYPASS_COLLECTIVES", "own"},
                                           {"GLOO_BYPASS_THREADS", "2"},
                                           {"GLOO_BYPASS_ALGORITHM", "all-reduce=ring"},
                                           {"GLOO_BYPASS_CHOICES", "/x/table.json"},
                                           {"GLOO_BYPASS_SUM_ORDER", "ranks"},
                                           {"GLOO_BYPASS_STATS", "stderr"},
                                           {"GLOO_BYPASS_HISTOGRAMS", "on"},
                                           {"GLOO_BYPASS_METRICS", "http://127.0.0.1:9400"},
                                           {"GLOO_BYPASS_METRICS_INTERVAL_MS", "100"},
                                           {"GLOO_BYPASS_TELEMETRY", "on"},
                                           {"GLOO_BYPASS_CAPTURE", "/x/rank%r.pcapng"},
                                           {"GLOO_BYPASS_CAPTURE_SNAPLEN", "96"},
                                           {"GLOO_BYPASS_CAPTURE_MAX_MIB", "10"},
                                           {"GLOO_BYPASS_CAPTURE_MARKERS", "127.0.0.1:9998"},
                                           {"GLOO_BYPASS_SECURITY", "encrypt"},
                                           {"GLOO_BYPASS_KEY_FILE", "/x/key"},
                                           {"GLOO_BYPASS_JOB", "job 7"},
                                           {"GLOO_BYPASS_CONGESTION_CONTROL", "bbr"},
                                           {"GLOO_BYPASS_PAYLOAD_CHECKSUM", "on"},
                                           {"GLOO_BYPASS_FEC", "25"},
                                           {"GLOO_BYPASS_RENDEZVOUS_BYTES", "65536"},
                                           {"GLOO_BYPASS_LONG_PATH_RTT_US", "2000"},
                                           {"GLOO_BYPASS_BBR_RTT_US", "0"},
                                           {"GLOO_BYPASS_EAGER_BYTES", "65536"},
                                           {"GLOO_BYPASS_MAX_BUFFER_BYTES", "1048576"},
                                           {"GLOO_BYPASS_FIXED_WINDOW_BYTES", "65536"},
                                           {"GLOO_BYPASS_MIN_RTO_US", "100"},
                                           {"GLOO_BYPASS_MAX_RTO_MS", "60000"},
                                           {"GLOO_BYPASS_KEEP_ALIVE_MS", "10"},
                                           {"GLOO_BYPASS_PEER_TIMEOUT_MS", "5000"},
                                           {"GLOO_BYPASS_CONNECT_TIMEOUT_MS", "100"},
                                           {"GLOO_BYPASS_RDMA_DEVICES", "mlx5_0,mlx5_1"},
                                           {"GLOO_BYPASS_RDMA_PORT", "2"},
                                           {"GLOO_BYPASS_RDMA_GID_INDEX", "3"},
                                           {"GLOO_BYPASS_RDMA_EAGER_BYTES", "65536"},
                                           {"GLOO_BYPASS_RDMA_CREDITS", "8"},
                                           {"GLOO_BYPASS_RDMA_CHUNK_BYTES", "8388608"},
                                           {"GLOO_BYPASS_RDMA_READ_BYTES", "262144"},
                                           {"GLOO_BYPASS_RDMA_TRAFFIC_CLASS", "106"},
                                           {"GLOO_BYPASS_RDMA_SERVICE_LEVEL", "3"},
                                           {"GLOO_BYPASS_RDMA_TIMEOUT", "31"},
                                           {"GLOO_BYPASS_RDMA_RETRY_COUNT", "0"},
                                           {"GLOO_BYPASS_RDMA_REGISTRATION_CACHE_BYTES", "0"},
                                           {"GLOO_BYPASS_RDMA_TRUSTED_NETWORK", "on"}};
  EXPECT_EQ(others.size(), settings().size()) << "a setting without a value here";
  for (const auto& other : others) {
    std::vector<SettingText> texts;
    // Not allowed without it.
    if (other.first == "GLOO_BYPASS_PCI_ADDRESS") texts.emplace_back("GLOO_BYPASS_IPV4", "10.0.0.2/24");
    if (other.first == "GLOO_BYPASS_KEY_FILE") texts.emplace_back("GLOO_BYPASS_SECURITY", "encrypt");
    const auto before = configurationFromTexts(texts);
    ASSERT_TRUE(before) << before.error().message;
    texts.push_back(other);
    const auto config = configurationFromTexts(texts);
    ASSERT_TRUE(config) << config.error().message;
    const auto different = differences(before.value(), config.value());
    ASSERT_EQ(different.size(), 1u) << other.first;
    EXPECT_THAT(different[0], AllOf(HasSubstr(other.first), HasSubstr(other.second)));
  }
}

TEST(Settings_Parse, WrongValue_NamesVariableValueAndWhatIsAllowed) {
  const std::vector<SettingText> wrong = {{"GLOO_BYPASS_LINK", "MEMIF"},
                                          {"GLOO_BYPASS_NETWORK", "memif"},
                                          {"GLOO_BYPASS_SPIN_US", "-1"},
                                          {"GLOO_BYPASS_SPIN_US", "5us"},
                                          {"GLOO_BYPASS_SPIN_US", "1e3"},
                                          {"GLOO_BYPASS_SPIN_US", " 5"},
                                          {"GLOO_BYPASS_UDP_PORT", "65536"},
                                          {"GLOO_BYPASS_UDP_PORT", "47777-"},
                                          {"GLOO_BYPASS_UDP_PORT", "-47777"},
                                          {"GLOO_BYPASS_UDP_PORT", "0-47777"},
                                          {"GLOO_BYPASS_UDP_PORT", "47778-47777"},
                                          {"GLOO_BYPASS_UDP_PORT", "47777-65536"},
                                          {"GLOO_BYPASS_UDP_PORT", "47777-47778-47779"},
                                          {"GLOO_BYPASS_UDP_PORT", "47777,47778"},
                                          {"GLOO_BYPASS_MEMORY_MIB", "99999999999999999999999"},
                                          {"GLOO_BYPASS_MTU", "575"},
                                          {"GLOO_BYPASS_INTERFACE", "a/b"},
                                          {"GLOO_BYPASS_INTERFACE", "sixteencharacter"},
                                          {"GLOO_BYPASS_INTERFACE", "eth0,"},
                                          {"GLOO_BYPASS_INTERFACE", ",eth0"},
                                          {"GLOO_BYPASS_INTERFACE", "eth0,sixteencharacter"},
                                          {"GLOO_BYPASS_MEMIF_DIRECTORY", "relative"},
                                          {"GLOO_BYPASS_MEMIF_DIRECTORY", "/a\tb"},
                                          {"GLOO_BYPASS_MEMIF_DIRECTORY", "/" + std::string(62, 'a')},
                                          {"GLOO_BYPASS_MEMIF_BUFFER_BYTES", "2047"},
                                          {"GLOO_BYPASS_MEMIF_BUFFER_BYTES", "65001"},
                                          {"GLOO_BYPASS_MEMIF_LOG2_SLOTS", "0"},
                                          {"GLOO_BYPASS_MEMIF_LOG2_SLOTS", "13"},
                                          {"GLOO_BYPASS_IPV4", "10.0.0.2"},
                                          {"GLOO_BYPASS_IPV4", "10.0.0.2/"},
                                          {"GLOO_BYPASS_IPV4", "10.0.0.2/32"},
                                          {"GLOO_BYPASS_IPV4", "10.0.0.256/24"},
                                          {"GLOO_BYPASS_IPV4", "10.0.0.2/33"},
                                          {"GLOO_BYPASS_GATEWAY", "here"},
                                          {"GLOO_BYPASS_EAL_ARGUMENTS", "-l '1"},
                                          {"GLOO_BYPASS_EAL_ARGUMENTS", "-l 1\\"},
                                          {"GLOO_BYPASS_STATS", "yes"},
                                          {"GLOO_BYPASS_METRICS", "/run/x.prom"},
                                          {"GLOO_BYPASS_METRICS", "http://127.0.0.1"},
                                          {"GLOO_BYPASS_METRICS_INTERVAL_MS", "99"},
                                          {"GLOO_BYPASS_TELEMETRY", "yes"},
                                          {"GLOO_BYPASS_CAPTURE", "capture.pcapng"},
                                          {"GLOO_BYPASS_CAPTURE", "/x/"},
                                          {"GLOO_BYPASS_CAPTURE_SNAPLEN", "63"},
                                          {"GLOO_BYPASS_CAPTURE_SNAPLEN", "65536"},
                                          {"GLOO_BYPASS_CAPTURE_MAX_MIB", "0"},
                                          {"GLOO_BYPASS_CAPTURE_MARKERS", "localhost"},
                                          {"GLOO_BYPASS_CAPTURE_MARKERS", "127.0.0.1:0"},
                                          {"GLOO_BYPASS_CAPTURE_MARKERS", "127.0.0.1:"},
                                          {"GLOO_BYPASS_SECURITY", "on"},
                                          {"GLOO_BYPASS_KEY_FILE", "key"},
                                          {"GLOO_BYPASS_JOB", "a\tb"},
                                          {"GLOO_BYPASS_JOB", std::string(129, 'a')},
                                          {"GLOO_BYPASS_FEC", "0"},
                                          {"GLOO_BYPASS_FEC", "26"},
                                          {"GLOO_BYPASS_FEC", "5%"},
                                          {"GLOO_BYPASS_PCI_ADDRESS", "eth0"},
                                          {"GLOO_BYPASS_PCI_ADDRESS", "eth_x0"},
                                          {"GLOO_BYPASS_RDMA_DEVICES", "rxe0,"},
                                          {"GLOO_BYPASS_RDMA_DEVICES", "rxe0,rxe0"},
                                          {"GLOO_BYPASS_RDMA_DEVICES", "rxe0, rxe1"},
                                          {"GLOO_BYPASS_RDMA_GID_INDEX", "-2"},
                                          {"GLOO_BYPASS_RDMA_EAGER_BYTES", "255"},
                                          {"GLOO_BYPASS_RDMA_CREDITS", "7"},
                                          {"GLOO_BYPASS_RDMA_CHUNK_BYTES", "65535"},
                                          {"GLOO_BYPASS_RDMA_CHUNK_BYTES", "8388609"},
                                          {"GLOO_BYPASS_RDMA_READ_BYTES", "65535"},
                                          {"GLOO_BYPASS_RDMA_TRAFFIC_CLASS", "256"},
                                          {"GLOO_BYPASS_RDMA_TIMEOUT", "0"},
                                          {"GLOO_BYPASS_RDMA_RETRY_COUNT", "8"}};
  for (const auto& [name, text] : wrong) {
    EXPECT_THAT(errorOf({{name, text}}), AllOf(HasSubstr(name), HasSubstr(printable("'" + text + "'")),
                                               HasSubstr("must be"), Not(HasSubstr("\n"))));
  }
}

TEST(Settings_Parse, ControlCharactersInNameOrValue_AreShownEscaped) {
  EXPECT_THAT(errorOf({{"GLOO_BYPASS_LINK", "m\033[2J\nmemif"}}), HasSubstr("'m\\x1b[2J\\x0amemif'"));
  EXPECT_THAT(errorOf({{"GLOO_BYPASS_L\033INK", "memif"}}), HasSubstr("GLOO_BYPASS_L\\x1bINK is not"));
}

TEST(Settings_Parse, LongestMemifDirectory_IsTaken) {
  EXPECT_EQ(errorOf({{"GLOO_BYPASS_MEMIF_DIRECTORY", "/" + std::string(61, 'a')}}), "");
}

TEST(Settings_Parse, UnknownName_NearestIsNamed) {
  EXPECT_THAT(errorOf({{"GLOO_BYPASS_LNK", "memif"}}),
              AllOf(HasSubstr("GLOO_BYPASS_LNK"), HasSubstr("did you mean GLOO_BYPASS_LINK?")));
  EXPECT_THAT(errorOf({{"GLOO_BYPASS_SPIN", "5"}}), HasSubstr("GLOO_BYPASS_SPIN_US"));
  EXPECT_EQ(errorOf({{"GLOO_SOCKET_IFNAME", "eth0"}}), "") << "only our own prefix is looked at";
  EXPECT_EQ(errorOf({{"GLOO_BYPASS_SIM_RUNS", "5"}}), "") << "of the project's own tests";
}

TEST(Settings_Parse, EmptyText_LeavesDefault) {
  EXPECT_EQ(errorOf({{"GLOO_BYPASS_LINK", ""}, {"GLOO_BYPASS_SPIN_US", ""}}), "");
}

TEST(Settings_Together, ValuesThatContradict_BothAreNamed) {
  EXPECT_THAT(errorOf({{"GLOO_BYPASS_LINK", "pci"}}), AllOf(HasSubstr("GLOO_BYPASS_PCI_ADDRESS"), HasSubstr("'pci'")));
  EXPECT_THAT(errorOf({{"GLOO_BYPASS_LINK", "pci"}, {"GLOO_BYPASS_PCI_ADDRESS", "00:04.0"}}),
              HasSubstr("GLOO_BYPASS_IPV4"));
  EXPECT_THAT(errorOf({{"GLOO_BYPASS_MIN_RTO_US", "3000000"}}),
              AllOf(HasSubstr("GLOO_BYPASS_MIN_RTO_US (3000 ms)"), HasSubstr("GLOO_BYPASS_MAX_RTO_MS (2000 ms)")));
  EXPECT_THAT(errorOf({{"GLOO_BYPASS_KEEP_ALIVE_MS", "10000"}, {"GLOO_BYPASS_PEER_TIMEOUT_MS", "5000"}}),
              AllOf(HasSubstr("GLOO_BYPASS_KEEP_ALIVE_MS"), HasSubstr("GLOO_BYPASS_PEER_TIMEOUT_MS")));
  EXPECT_THAT(errorOf({{"GLOO_BYPASS_MEMIF_BUFFER_BYTES", "65000"}, {"GLOO_BYPASS_MEMIF_LOG2_SLOTS", "12"}}),
              AllOf(HasSubstr("'65000'"), HasSubstr("'12'")));
}

// Otherwise a healthy pair with nothing to send would time out before the answer to a probe can arrive.
TEST(Settings_Together, KeepAlive_IsHalfOfThePeerTimeoutAtMost) {
  EXPECT_EQ(errorOf({{"GLOO_BYPASS_KEEP_ALIVE_MS", "60000"}}), "");
  EXPECT_THAT(errorOf({{"GLOO_BYPASS_KEEP_ALIVE_MS", "60001"}}),
              AllOf(HasSubstr("GLOO_BYPASS_KEEP_ALIVE_MS (60001 ms)"), HasSubstr("GLOO_BYPASS_PEER_TIMEOUT_MS='0'"),
                    HasSubstr("(60000 ms)"), Not(HasSubstr("\n"))));
  const SettingText timeout{"GLOO_BYPASS_PEER_TIMEOUT_MS", "5000"};
  EXPECT_EQ(errorOf({{"GLOO_BYPASS_KEEP_ALIVE_MS", "2500"}, timeout}), "");
  EXPECT_THAT(errorOf({{"GLOO_BYPASS_KEEP_ALIVE_MS", "5000"}, timeout}),
              HasSubstr("half of GLOO_BYPASS_PEER_TIMEOUT_MS (2500 ms)"));
  EXPECT_THAT(errorOf({{"GLOO_BYPASS_PEER_TIMEOUT_MS", "1000"}}), HasSubstr("GLOO_BYPASS_KEEP_ALIVE_MS (1000 ms)"));
}

// A program's wait may last longer than any default; a machine that is stopped, or a path that returns, answers in
// time.
TEST(Settings_Together, PeerTimeout_IsTheUsersUnlessSet) {
  using std::chrono::minutes;
  TransportConfig config;
  EXPECT_EQ(peerTimeout(config, minutes(30)), Duration(minutes(30)));
  EXPECT_EQ(peerTimeout(config, std::chrono::seconds(10)), Duration(minutes(2)));
  config.peerTimeout = std::chrono::seconds(5);
  EXPECT_EQ(peerTimeout(config, minutes(30)), Duration(std::chrono::seconds(5)));
}

TEST(Settings_Together, NetworkWithoutLinkModeAuto_BothAreNamed) {
  for (const char* link : {"memif", "netdev"}) {
    for (const char* network : {"udp", "rdma"}) {
      EXPECT_THAT(errorOf({{"GLOO_BYPASS_LINK", link}, {"GLOO_BYPASS_NETWORK", network}}),
                  AllOf(HasSubstr("GLOO_BYPASS_NETWORK"), HasSubstr("GLOO_BYPASS_LINK"), Not(HasSubstr("\n"))));
    }
  }
  EXPECT_EQ(errorOf({{"GLOO_BYPASS_LINK", "auto"}, {"GLOO_BYPASS_NETWORK", "udp"}}), "");
  EXPECT_EQ(errorOf({{"GLOO_BYPASS_LINK", "memif"}, {"GLOO_BYPASS_NETWORK", "auto"}}), "");
}

TEST(Settings_Together, NetworkPci_NeedsDeviceAndItsAddress) {
  const SettingText pci{"GLOO_BYPASS_NETWORK", "pci"}, device{"GLOO_BYPASS_PCI_ADDRESS", "00:04.0"},
      address{"GLOO_BYPASS_IPV4", "10.0.0.2/24"};
  EXPECT_THAT(errorOf({pci}),
              AllOf(HasSubstr("GLOO_BYPASS_PCI_ADDRESS is not set"), HasSubstr("GLOO_BYPASS_NETWORK='pci'")));
  EXPECT_THAT(errorOf({pci, device}),
              AllOf(HasSubstr("GLOO_BYPASS_IPV4 is not set"), HasSubstr("GLOO_BYPASS_NETWORK='pci'")));
  // A device alone implies that network.
  EXPECT_THAT(errorOf({device}),
              AllOf(HasSubstr("GLOO_BYPASS_IPV4 is not set"), HasSubstr("GLOO_BYPASS_PCI_ADDRESS needs it")));
  EXPECT_EQ(errorOf({device, address}), "");
  EXPECT_EQ(errorOf({device, {"GLOO_BYPASS_NETWORK", "udp"}}), "");
  EXPECT_EQ(errorOf({device, {"GLOO_BYPASS_LINK", "memif"}}), "");
}

TEST(Settings_Together, CaptureWithTwoPortsOfDpdk_IsRefused) {
  const SettingText capture{"GLOO_BYPASS_CAPTURE", "/x/%p.pcapng"}, netdev{"GLOO_BYPASS_NETWORK", "netdev"};
  EXPECT_THAT(errorOf({capture, netdev}),
              AllOf(HasSubstr("GLOO_BYPASS_CAPTURE"), HasSubstr("GLOO_BYPASS_LINK='auto'"), Not(HasSubstr("\n"))));
  EXPECT_THAT(errorOf({capture, {"GLOO_BYPASS_PCI_ADDRESS", "00:04.0"}, {"GLOO_BYPASS_IPV4", "10.0.0.2/24"}}),
              HasSubstr("GLOO_BYPASS_CAPTURE"));
  EXPECT_EQ(errorOf({capture}), "") << "beside UDP sockets it records the memory links";
  EXPECT_EQ(errorOf({capture, {"GLOO_BYPASS_NETWORK", "rdma"}}), "") << "beside RDMA too";
  EXPECT_EQ(errorOf({capture, {"GLOO_BYPASS_LINK", "netdev"}}), "");
}

// Whoever names a key file counts on being protected.
TEST(Settings_Together, KeyFileWhileNothingIsSealed_BothAreNamed) {
  const SettingText file{"GLOO_BYPASS_KEY_FILE", "/x/key"};
  EXPECT_THAT(errorOf({file}), AllOf(HasSubstr("GLOO_BYPASS_KEY_FILE"), HasSubstr("GLOO_BYPASS_SECURITY")));
  EXPECT_EQ(errorOf({file, {"GLOO_BYPASS_SECURITY", "encrypt"}}), "");
}

TEST(Settings_Validate, FieldSetByProgramOutOfRange_IsNamed) {
  TransportConfig config;
  config.memoryMiB = 3;
  EXPECT_THAT(validate(config).error().message,
              AllOf(HasSubstr("GLOO_BYPASS_MEMORY_MIB='3'"), HasSubstr("16 to 65536 MiB")));
}

TEST(Settings_Print, Tables_HoldEveryRow) {
  for (const Setting& setting : settings()) {
    EXPECT_THAT(settingsAsText(), HasSubstr(setting.name + "\n"));
    EXPECT_THAT(settingsAsMarkdown(), HasSubstr("| `" + setting.name + "` |"));
    EXPECT_THAT(configurationAsText(TransportConfig()), HasSubstr(setting.name + "="));
  }
}

}  // namespace
}  // namespace gloo_bypass
