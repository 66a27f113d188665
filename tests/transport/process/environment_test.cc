#include "transport/process/environment.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "transport/process/foreign_variables.h"
#include "transport/process/gloo_address.h"
#include "transport/process/settings.h"

extern char** environ;

namespace gloo_bypass {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Sets variables for one test and restores them.
class Environment : public ::testing::Test {
 protected:
  Environment() {
    for (const Setting& setting : settings()) unsetenv(setting.name.c_str());
    for (const char* name : {"RANK", "MASTER_ADDR", "RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR", "GLOO_DEVICE_TRANSPORT"}) {
      unsetenv(name);
    }
  }
  ~Environment() override {
    for (const std::string& name : set_) unsetenv(name.c_str());
  }
  void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    set_.push_back(name);
  }

 private:
  std::vector<std::string> set_;
};

TEST_F(Environment, NothingSet_DefaultsWithDirectoryFilledIn) {
  const auto config = configurationFromEnvironment();
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config.value().link, LinkMode::kAuto);
  EXPECT_EQ(config.value().network, Network::kAuto);
  EXPECT_EQ(config.value().memifDirectory, "/tmp/gloo-bypass-" + std::to_string(geteuid()));
  EXPECT_TRUE(config.value().memifDirectoryIsDefault);
  EXPECT_EQ(requestedDeviceTransport(), "");
}

TEST_F(Environment, VariablesSet_AreTaken) {
  set("GLOO_BYPASS_LINK", "netdev");
  set("GLOO_BYPASS_SPIN_US", "7");
  set("GLOO_DEVICE_TRANSPORT", "DPDK");
  set("MASTER_ADDR", "10.0.0.1");
  set("GLOO_BYPASS_MEMIF_DIRECTORY", "/run/x");
  const auto config = configurationFromEnvironment();
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config.value().link, LinkMode::kNetdev);
  EXPECT_EQ(config.value().memifDirectory, "/run/x");
  EXPECT_FALSE(config.value().memifDirectoryIsDefault);
  EXPECT_EQ(config.value().spin, std::chrono::microseconds(7));
  EXPECT_EQ(config.value().masterAddress, "10.0.0.1");
  EXPECT_EQ(requestedDeviceTransport(), "DPDK");
}

// kubernetes#35189: the kubelet gives each container variables for every Service of the namespace.
TEST_F(Environment, VariablesOfAServiceLinkOrModule_AreIgnoredWithOneLineAProcess) {
  set("GLOO_BYPASS_SERVICE_HOST", "10.3.104.46");
  set("GLOO_BYPASS_PORT", "tcp://10.3.104.46:9101");
  set("GLOO_BYPASS_UDP_PORT", "udp://10.3.104.46:9101");  // of a Service "gloo-bypass-udp"
  set("GLOO_BYPASS_SPIN_US", "7");
  ::testing::internal::CaptureStderr();
  const auto config = configurationFromEnvironment();
  (void)settingsInEnvironment();
  const std::string said = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config.value().spin, std::chrono::microseconds(7));
  EXPECT_EQ(config.value().udpPorts.first, 0);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_THAT(said, AllOf(HasSubstr("ignoring the variables GLOO_BYPASS_"), HasSubstr(" and 2 others")));
}

TEST_F(Environment, MisspeltSetting_IsRefusedBesideThem) {
  set("GLOO_BYPASS_SERVICE_HOST", "10.3.104.46");
  set("GLOO_BYPASS_PORT", "47777");
  EXPECT_THAT(configurationFromEnvironment().error().message,
              HasSubstr("GLOO_BYPASS_PORT is not a known setting: did you mean"));
}

TEST(ForeignVariables, EachThatOthersSet_IsTold) {
  const std::vector<SettingText> foreign = {{"GLOO_BYPASS_SERVICE_HOST", "fd00::1"},
                                            {"GLOO_BYPASS_SERVICE_PORT", "9101"},
                                            {"GLOO_BYPASS_SERVICE_PORT_METRICS", "9101"},
                                            {"GLOO_BYPASS_PORT", "tcp://[fd00::1]:9101"},
                                            {"GLOO_BYPASS_PORT_9101_TCP", "tcp://10.3.104.46:9101"},
                                            {"GLOO_BYPASS_PORT_9101_TCP_PROTO", "tcp"},
                                            {"GLOO_BYPASS_PORT_9101_TCP_PORT", "9101"},
                                            {"GLOO_BYPASS_PORT_9101_TCP_ADDR", "10.3.104.46"},
                                            {"GLOO_BYPASS_METRICS_SERVICE_HOST", "10.3.104.46"},
                                            {"GLOO_BYPASS_METRICS_PORT", "tcp://10.3.104.46:9101"},
                                            {"GLOO_BYPASS_MY_PORT_PORT_53_UDP_ADDR", "10.3.104.46"},
                                            {"GLOO_BYPASS_X_PORT_132_SCTP", "sctp://10.3.104.46:132"},
                                            {"GLOO_BYPASS_RDMA_PORT", "tcp://10.3.104.46:9101"},
                                            {"GLOO_BYPASS_NAME", "/web2/gloo-bypass"},
                                            {"GLOO_BYPASS_ENV_PATH", "/bin"},
                                            {"GLOO_BYPASS_ROOT", "/apps/gloo-bypass"}};
  for (const auto& [name, value] : foreign) EXPECT_TRUE(isForeignVariable(name, value)) << name;
}

TEST(ForeignVariables, SettingsAndWhatIsMisspelt_AreNot) {
  for (const Setting& setting : settings()) {
    EXPECT_FALSE(isForeignVariable(setting.name, setting.format({}))) << setting.name;
    EXPECT_FALSE(isForeignVariable(setting.name, "")) << setting.name;
    EXPECT_FALSE(isForeignVariable(setting.name + "S", "1")) << setting.name;
  }
  const std::vector<SettingText> misspelt = {{"GLOO_BYPASS_PORT", "9101"},       {"GLOO_BYPASS_PORT_", "9"},
                                             {"GLOO_BYPASS_PORT_9101", "9"},     {"GLOO_BYPASS_PORT_TCP", "9"},
                                             {"GLOO_BYPASS_PORT_9101_", "9"},    {"GLOO_BYPASS_UDP_PORTS", "tcp://x"},
                                             {"GLOO_BYPASS_SERVICE_LEVEL", "3"}, {"GLOO_BYPASS_METRICS", "tcp://x"},
                                             {"GLOO_BYPASS_LINK_NAME", "eth0"},  {"GLOO_BYPASS_PORT_12_TCPX", "9"}};
  for (const auto& [name, value] : misspelt) EXPECT_FALSE(isForeignVariable(name, value)) << name;
}

TEST_F(Environment, MetricsWithRank_PortIsTheRanksOwn) {
  set("GLOO_BYPASS_METRICS", "http://127.0.0.1:9400+%r");
  EXPECT_FALSE(configurationFromEnvironment()) << "RANK is not set";
  set("RANK", "3");
  const auto config = configurationFromEnvironment();
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config.value().metrics, "http://127.0.0.1:9400+3");
  EXPECT_EQ(config.value().rank, "3");
  set("RANK", "x");
  const auto wrong = configurationFromEnvironment();
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message.find("GLOO_BYPASS_METRICS='http://127.0.0.1:9400+x'"), 0u) << wrong.error().message;
}

TEST_F(Environment, UnknownVariable_IsRefused) {
  set("GLOO_BYPASS_SPINN_US", "7");
  EXPECT_THAT(configurationFromEnvironment().error().message,
              AllOf(HasSubstr("GLOO_BYPASS_SPINN_US"), HasSubstr("GLOO_BYPASS_SPIN_US")));
}

TEST_F(Environment, RuntimeDirectoryMissing_TmpIsTaken) {
  set("XDG_RUNTIME_DIR", "/nowhere/at/all");
  EXPECT_TRUE(configurationFromEnvironment().value().memifDirectory.starts_with("/tmp/"));
}

TEST_F(Environment, RuntimeDirectoryTooLongForSockets_IsNoMistakeOfASetting) {
  const TemporaryFolder folder;
  const std::string longer = folder.path + "/" + std::string(62, 'x');
  std::filesystem::create_directory(longer);
  set("XDG_RUNTIME_DIR", longer);
  const auto config = configurationFromEnvironment();
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config.value().memifDirectory.starts_with(longer));
}

TEST_F(Environment, StatsWithRank_RankIsFilledInOrMissed) {
  set("GLOO_BYPASS_STATS", "/x/rank-%r.json");
  EXPECT_THAT(configurationFromEnvironment().error().message, AllOf(HasSubstr("GLOO_BYPASS_STATS"), HasSubstr("RANK")));
  set("RANK", "3");
  EXPECT_EQ(configurationFromEnvironment().value().stats, "/x/rank-3.json");
}

TEST_F(Environment, CaptureWithRank_RankIsFilledInOrMissed) {
  set("GLOO_BYPASS_CAPTURE", "/x/rank-%r-%p.pcapng");
  EXPECT_THAT(configurationFromEnvironment().error().message,
              AllOf(HasSubstr("GLOO_BYPASS_CAPTURE"), HasSubstr("RANK")));
  set("RANK", "3");
  EXPECT_EQ(configurationFromEnvironment().value().capture, "/x/rank-3-%p.pcapng");
}

TEST(GlooAddress_Ignored, InterfaceOrHostGiven_IsNotLookedAt) {
  const auto config = withGlooAddress(InterfaceRule::kIgnored, TransportConfig(), "eth7", "");
  ASSERT_TRUE(config);
  EXPECT_EQ(config.value().interface, "");
}

TEST(GlooAddress_Several, OneOfGloosList_TheWholeListIsTakenWhereSeveralAreUsed) {
  EXPECT_EQ(interfacesFor(InterfaceRule::kSeveral, "eth0,eth1", "eth1"), "eth0,eth1");
  for (const InterfaceRule one : {InterfaceRule::kNamed, InterfaceRule::kOptional, InterfaceRule::kRequired}) {
    EXPECT_EQ(interfacesFor(one, "eth0,eth1", "eth1"), "eth0");
    EXPECT_EQ(interfacesFor(one, "eth0,eth1", "eth0,eth1"), "eth0") << "of our own groups";
    EXPECT_EQ(interfacesFor(one, "eth0", "eth1"), "eth1") << "a program's own";
  }
  EXPECT_EQ(interfacesFor(InterfaceRule::kSeveral, "eth0,eth10", "eth1"), "eth1") << "a program's own";
  EXPECT_EQ(interfacesFor(InterfaceRule::kSeveral, "eth0,", ""), "");
}

TEST(GlooAddress_Several, ListWhereOneIsUsed_IsRefusedInOneLine) {
  TransportConfig config;
  config.interface = "eth0,eth1";
  EXPECT_EQ(withGlooAddress(InterfaceRule::kSeveral, config, "", "").value().interface, "eth0,eth1");
  for (const auto rule : {InterfaceRule::kNamed, InterfaceRule::kOptional, InterfaceRule::kRequired}) {
    EXPECT_THAT(withGlooAddress(rule, config, "", "").error().message,
                AllOf(HasSubstr("'eth0,eth1' are several"), HasSubstr("name one")));
  }
}

TEST(GlooAddress_Required, InterfaceGiven_IsTaken) {
  TransportConfig config;
  EXPECT_EQ(withGlooAddress(InterfaceRule::kRequired, config, "eth7", "").value().interface, "eth7");
}

TEST(GlooAddress_Required, InterfacesContradict_BothAreNamed) {
  TransportConfig config;
  config.interface = "eth1";
  EXPECT_THAT(withGlooAddress(InterfaceRule::kRequired, config, "eth2", "").error().message,
              AllOf(HasSubstr("'eth1'"), HasSubstr("'eth2'")));
  EXPECT_EQ(withGlooAddress(InterfaceRule::kRequired, config, "", "nowhere.invalid").value().interface, "eth1");
}

TEST(GlooAddress_Required, HostOnLoopbackOrUnknown_SaysWhatToSet) {
  TransportConfig config;
  EXPECT_THAT(withGlooAddress(InterfaceRule::kRequired, config, "", "127.0.1.1").error().message,
              AllOf(HasSubstr("127.0.1.1"), HasSubstr("GLOO_SOCKET_IFNAME")));
  // 192.0.2.0/24 is reserved for documentation: no machine has it.
  EXPECT_THAT(withGlooAddress(InterfaceRule::kRequired, config, "", "192.0.2.77").error().message,
              AllOf(HasSubstr("192.0.2.77"), HasSubstr("GLOO_SOCKET_IFNAME")));
}

TEST(GlooAddress_Named, HostGiven_IsNotLookedAt) {
  EXPECT_EQ(withGlooAddress(InterfaceRule::kNamed, {}, "", "localhost").value().interface, "");
  EXPECT_EQ(withGlooAddress(InterfaceRule::kNamed, {}, "eth7", "").value().interface, "eth7");
}

TEST(GlooAddress_Optional, InterfaceGiven_IsTakenAndMayNotContradict) {
  TransportConfig config;
  EXPECT_EQ(withGlooAddress(InterfaceRule::kOptional, config, "eth7", "").value().interface, "eth7");
  config.interface = "eth1";
  EXPECT_THAT(withGlooAddress(InterfaceRule::kOptional, config, "eth2", "").error().message,
              AllOf(HasSubstr("'eth1'"), HasSubstr("'eth2'"), HasSubstr("GLOO_SOCKET_IFNAME")));
}

TEST(GlooAddress_Optional, HostLeadsToNoInterface_LeftToTheChoiceOfDevice) {
  for (const char* host : {"127.0.1.1", "192.0.2.77", "nosuch.invalid", ""}) {
    const auto config = withGlooAddress(InterfaceRule::kOptional, TransportConfig(), "", host);
    ASSERT_TRUE(config) << host << ": " << config.error().message;
    EXPECT_EQ(config.value().interface, "") << host;
    EXPECT_EQ(config.value().hostInterface, "") << host;
  }
}

TEST(GlooAddress_Optional, HostGiven_ItsInterfaceIsPreferredOnly) {
  ifaddrs* list = nullptr;
  ASSERT_EQ(getifaddrs(&list), 0);
  std::string name, address;
  for (const ifaddrs* entry = list; entry != nullptr && name.empty(); entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET || (entry->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    char text[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr, text, sizeof(text));
    name = entry->ifa_name;
    address = text;
  }
  freeifaddrs(list);
  if (name.empty()) GTEST_SKIP() << "this machine has the loopback only";
  const auto config = withGlooAddress(InterfaceRule::kOptional, TransportConfig(), "", address);
  EXPECT_EQ(config.value().interface, "");
  EXPECT_EQ(config.value().hostInterface, name);
}

TEST(GlooAddress_Optional, InterfaceConfigured_HostDoesNotMatter) {
  TransportConfig config;
  config.interface = "eth1";
  EXPECT_EQ(withGlooAddress(InterfaceRule::kOptional, config, "", "127.0.0.1").value().interface, "eth1");
}

TEST_F(Environment, DpdkDirectory_IsTheOneThatDpdkChooses) {
  set("XDG_RUNTIME_DIR", "/run/user/7");
  EXPECT_EQ(configurationFromEnvironment().value().dpdkDirectory, getuid() == 0 ? "/var/run/dpdk" : "/run/user/7/dpdk");
  set("RUNTIME_DIRECTORY", "/run/unit");
  EXPECT_EQ(configurationFromEnvironment().value().dpdkDirectory, "/run/unit/dpdk");
}

}  // namespace
}  // namespace gloo_bypass
