// Link mode pci on a NIC that DPDK drives. Runs in the guest (guest_test.py), which has two on one hub.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "transport/dpdk/dpdk_port.h"

namespace gloo_bypass {
namespace {

constexpr const char* kAddress = "0000:00:10.0";

TransportConfig pciConfig() {
  TransportConfig config;
  config.link = LinkMode::kPci;
  config.pciAddress = kAddress;
  config.ipv4 = "10.78.0.1/24";
  return config;
}

class PciPort : public ::testing::Test {
 protected:
  void SetUp() override {
    std::error_code error;
    const auto driver =
        std::filesystem::read_symlink(std::string("/sys/bus/pci/devices/") + kAddress + "/driver", error);
    const std::string name = driver.filename().string();
    if (name != "vfio-pci" && name != "uio_pci_generic")
      GTEST_SKIP() << "no NIC at " << kAddress << " that DPDK may drive";
  }
};

TEST_F(PciPort, MadeClosedAndMadeAgain_Works) {
  for (int round = 0; round < 3; ++round) {
    const auto port = dpdk::makeDpdkPort(pciConfig());
    ASSERT_TRUE(port.ok()) << "round " << round << ": " << port.error().message;
    EXPECT_NE(port.value()->describe().find(kAddress), std::string::npos) << port.value()->describe();
  }
}

TEST_F(PciPort, AddressWithoutDevice_IsNamed) {
  TransportConfig config = pciConfig();
  config.pciAddress = "0000:00:1e.0";
  const auto port = dpdk::makeDpdkPort(config);
  ASSERT_FALSE(port.ok());
  EXPECT_NE(port.error().message.find("0000:00:1e.0"), std::string::npos) << port.error().message;
}

}  // namespace
}  // namespace gloo_bypass
