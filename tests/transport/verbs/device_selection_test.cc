// The choice of device, port and GID, and the errors if there is none. On simulated devices; the interface is lo.
#include "transport/verbs/device_selection.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace gloo_bypass::verbs {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Gid {
  std::string address;  // dotted: mapped IPv4; else IPv6
  unsigned interface = 0;
  unsigned type = IBV_GID_TYPE_ROCE_V2;
  unsigned port = 1;
  int index = -1;  // -1: its place in the list
};

struct FakeDevice {
  std::string name;
  std::vector<Gid> gids;
  std::vector<ibv_port_state> ports = {IBV_PORT_ACTIVE};
  std::uint8_t linkLayer = IBV_LINK_LAYER_ETHERNET;
  int openError = 0;
};

ibv_gid gidOf(const std::string& address) {
  ibv_gid gid{};
  const bool ipv4 = address.find(':') == std::string::npos;
  if (::inet_pton(AF_INET6, (ipv4 ? "::ffff:" + address : address).c_str(), gid.raw) != 1) std::abort();
  return gid;
}

// The machine's devices, as libibverbs shows them.
class FakeMachine {
 public:
  FakeMachine() {
    current = this;
    api.getDeviceList = [](int* count) { return current->list(count); };
    api.freeDeviceList = [](ibv_device** list) { delete[] list; };
    api.getDeviceName = [](ibv_device* device) -> const char* { return device->name; };
    api.openDevice = [](ibv_device* device) { return current->open(device); };
    api.closeDevice = [](ibv_context* context) {
      delete context;
      --current->open_;
      return 0;
    };
    api.queryDevice = [](ibv_context* context, ibv_device_attr* attributes) {
      attributes->phys_port_cnt = static_cast<std::uint8_t>(current->of(context).ports.size());
      return 0;
    };
    api.queryPort = [](ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) {
      attributes->state = current->of(context).ports.at(port - 1u);
      attributes->link_layer = current->of(context).linkLayer;
      attributes->active_mtu = IBV_MTU_4096;
      attributes->lid = 7;
      attributes->gid_tbl_len = 16;
      return 0;
    };
    api.queryGidTable = [](ibv_context* context, ibv_gid_entry* entries, std::size_t capacity, std::uint32_t,
                           std::size_t) { return current->gids(context, entries, capacity); };
  }
  ~FakeMachine() { current = nullptr; }
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

  VerbsApi api;
  std::vector<FakeDevice> devices;
  int listError = 0;
  int openContexts() const { return open_; }

 private:
  inline static FakeMachine* current = nullptr;

  ibv_device** list(int* count) {
    errno = listError;
    if (listError != 0) return nullptr;
    handles_ = std::vector<ibv_device>(devices.size());
    auto** list = new ibv_device*[devices.size() + 1]();
    for (std::size_t i = 0; i < devices.size(); ++i) {
      std::strncpy(handles_[i].name, devices[i].name.c_str(), sizeof handles_[i].name - 1);
      list[i] = &handles_[i];
    }
    *count = static_cast<int>(devices.size());
    return list;
  }
  ibv_context* open(ibv_device* device) {
    errno = devices.at(static_cast<std::size_t>(device - handles_.data())).openError;
    if (errno != 0) return nullptr;
    ++open_;
    auto* context = new ibv_context{};
    context->device = device;
    return context;
  }
  const FakeDevice& of(ibv_context* context) const {
    return devices.at(static_cast<std::size_t>(context->device - handles_.data()));
  }
  ssize_t gids(ibv_context* context, ibv_gid_entry* entries, std::size_t capacity) const {
    const auto& gids = of(context).gids;
    if (gids.size() > capacity) return -EINVAL;
    for (std::size_t i = 0; i < gids.size(); ++i) {
      const Gid& gid = gids[i];
      entries[i] = {gidOf(gid.address),
                    gid.index < 0 ? static_cast<std::uint32_t>(i) : static_cast<std::uint32_t>(gid.index), gid.port,
                    gid.type, gid.interface};
    }
    return static_cast<ssize_t>(gids.size());
  }

  std::vector<ibv_device> handles_;
  int open_ = 0;
};

class DeviceSelectionTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(machine_.openContexts(), 0); }

  Result<std::vector<Rail>> select(const std::string& interface = "") {
    TransportConfig config = others_;
    config.rdma = config_;
    config.interface = interface;
    return selectRails(machine_.api, config);
  }
  // The error's text; fails the test if there is no error.
  std::string refusal(const std::string& interface = "") {
    const auto selected = select(interface);
    EXPECT_FALSE(selected);
    return selected ? "" : selected.error().message;
  }

  const unsigned lo_ = ::if_nametoindex("lo");
  const unsigned other_ = lo_ + 1000;
  FakeMachine machine_;
  RdmaConfig config_;
  TransportConfig others_;
};

TEST_F(DeviceSelectionTest, Interface_DeviceWithGidOnIt_IsTaken) {
  machine_.devices = {{"other0", {{"10.0.0.1", other_}}},
                      {"rxe0", {{"fe80::1", lo_}, {"127.0.0.1", lo_, IBV_GID_TYPE_ROCE_V1}, {"127.0.0.1", lo_}}}};
  const auto selected = select("lo");
  ASSERT_TRUE(selected) << selected.error().message;
  ASSERT_EQ(selected.value().size(), 1u);
  const Rail& rail = selected.value()[0];
  EXPECT_EQ(rail.deviceName, "rxe0");
  EXPECT_EQ(rail.port, 1);
  EXPECT_EQ(rail.gidIndex, 2);
  EXPECT_EQ(std::memcmp(rail.gid.raw, gidOf("127.0.0.1").raw, 16), 0);
  EXPECT_EQ(rail.attributes.active_mtu, IBV_MTU_4096);
  EXPECT_EQ(rail.attributes.lid, 7);
  EXPECT_EQ(machine_.openContexts(), 1);  // the other is closed again
}

TEST_F(DeviceSelectionTest, Interface_GidWithoutInterface_FoundByItsAddress) {
  machine_.devices = {{"other0", {{"10.0.0.1"}}}, {"rxe0", {{"127.0.0.1"}}}};
  const auto selected = select("lo");
  ASSERT_TRUE(selected) << selected.error().message;
  EXPECT_EQ(selected.value()[0].deviceName, "rxe0");
}

TEST_F(DeviceSelectionTest, Interface_SeveralGids_ItsOwnIpv4First) {
  machine_.devices = {{"rxe0", {{"fd00::1", lo_}, {"10.0.0.1", other_}, {"127.0.0.2", lo_}, {"127.0.0.1", lo_}}}};
  EXPECT_EQ(select("lo").value()[0].gidIndex, 3);
  machine_.devices[0].gids.pop_back();
  EXPECT_EQ(select("lo").value()[0].gidIndex, 2);
  machine_.devices[0].gids.pop_back();
  EXPECT_EQ(select("lo").value()[0].gidIndex, 1);
  machine_.devices[0].gids.pop_back();
  EXPECT_EQ(select("lo").value()[0].gidIndex, 0);
}

TEST_F(DeviceSelectionTest, Interface_GidOnSecondPort_ThatPortIsTaken) {
  machine_.devices = {{"mlx0",
                       {{"10.0.0.1", other_}, {"127.0.0.1", lo_, IBV_GID_TYPE_ROCE_V2, 2}},
                       {IBV_PORT_ACTIVE, IBV_PORT_ACTIVE}}};
  const auto selected = select("lo");
  EXPECT_EQ(selected.value()[0].port, 2);
  EXPECT_EQ(selected.value()[0].gidIndex, 1);
}

TEST_F(DeviceSelectionTest, Interface_NoDeviceOnIt_ErrorListsDevices) {
  machine_.devices = {{"rxe7", {{"10.0.0.1", other_}}}};
  EXPECT_THAT(refusal("lo"), AllOf(HasSubstr("lo"), HasSubstr("rxe7 (port 1 active)"),
                                   HasSubstr("GLOO_BYPASS_RDMA_DEVICES"), HasSubstr("rdma link add rxe0 type rxe")));
}

TEST_F(DeviceSelectionTest, Interface_Unknown_ErrorNamesIt) {
  machine_.devices = {{"rxe0", {{"127.0.0.1", lo_}}}};
  EXPECT_THAT(refusal("nosuchif0"), HasSubstr("nosuchif0"));
}

TEST_F(DeviceSelectionTest, NoInterface_OneActiveDevice_IsTaken) {
  machine_.devices = {{"down0", {{"10.0.0.1"}}, {IBV_PORT_DOWN}}, {"rxe0", {{"10.0.0.2"}}}};
  const auto selected = select();
  ASSERT_TRUE(selected) << selected.error().message;
  EXPECT_EQ(selected.value()[0].deviceName, "rxe0");
}

TEST_F(DeviceSelectionTest, NoInterface_SeveralActive_ErrorSaysHowToNameOne) {
  machine_.devices = {{"rxe0", {{"10.0.0.1", lo_}}}, {"rxe1", {{"10.0.0.2"}}}};
  EXPECT_THAT(refusal(), AllOf(HasSubstr("rxe0 (on lo, port 1 active), rxe1 (port 1 active)"),
                               HasSubstr("GLOO_BYPASS_RDMA_DEVICES"), HasSubstr("GLOO_SOCKET_IFNAME")));
}

TEST_F(DeviceSelectionTest, NoInterface_NoneActive_ErrorNamesStates) {
  machine_.devices = {{"rxe0", {{"10.0.0.1"}}, {IBV_PORT_DOWN, IBV_PORT_INIT}}};
  EXPECT_THAT(refusal(), HasSubstr("rxe0 (port 1 down, port 2 initialising)"));
}

TEST_F(DeviceSelectionTest, NoInterface_DeviceOnTheHostNames_IsTaken) {
  machine_.devices = {{"rxe0", {{"10.0.0.1", other_}}}, {"rxe1", {{"127.0.0.1", lo_}}}};
  others_.hostInterface = "lo";
  const auto selected = select();
  ASSERT_TRUE(selected) << selected.error().message;
  EXPECT_EQ(selected.value()[0].deviceName, "rxe1");
}

TEST_F(DeviceSelectionTest, NoInterface_NoDeviceOnTheHostNames_OnlyActiveOneIsTakenOrTheErrorNamesBoth) {
  machine_.devices = {{"down0", {{"127.0.0.1", lo_}}, {IBV_PORT_DOWN}}, {"rxe0", {{"10.0.0.1", other_}}}};
  others_.hostInterface = "lo";
  const auto selected = select();
  ASSERT_TRUE(selected) << selected.error().message;
  EXPECT_EQ(selected.value()[0].deviceName, "rxe0");
  machine_.devices.push_back({"rxe1", {{"10.0.1.1", other_}}});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("none is on lo"), HasSubstr("rxe1 (port 1 active)"),
                               HasSubstr("GLOO_BYPASS_RDMA_DEVICES")));
}

// Two interfaces, in a new network namespace of the calling thread. False: this user may not make one.
bool makeTwoNetworks() {
  if (::geteuid() != 0 || ::unshare(CLONE_NEWNET) != 0) return false;
  return std::system(
             "(ip link set lo up && ip link add v0 type veth peer name v1 && ip link add w0 type veth peer name w1 &&"
             " ip address add 10.9.0.1/24 dev v0 && ip address add 10.10.0.1/24 dev w0 &&"
             " for each in v0 v1 w0 w1; do ip link set $each up; done) 2>/dev/null") == 0;
}

TEST_F(DeviceSelectionTest, NoInterface_DeviceOnTheRouteToMaster_GoesBeforeTheHostNames) {
  bool made = false;
  std::thread([&] {
    made = makeTwoNetworks();
    if (!made) return;
    const unsigned v0 = ::if_nametoindex("v0"), w0 = ::if_nametoindex("w0");
    machine_.devices = {{"rxe0", {{"10.9.0.1", v0}}}, {"rxe1", {{"10.10.0.1", w0}}}};
    others_.hostInterface = "v0";
    const std::map<std::string, std::string> expected = {
        {"10.10.0.2", "rxe1"}, {"10.10.0.1", "rxe1"}, {"10.9.0.2", "rxe0"}, {"192.0.2.1", "rxe0"}, {"", "rxe0"}};
    for (const auto& [master, device] : expected) {
      others_.masterAddress = master;
      const auto selected = select();
      ASSERT_TRUE(selected) << selected.error().message;
      EXPECT_EQ(selected.value()[0].deviceName, device) << master;
    }
    others_.masterAddress = "10.10.0.2";
    EXPECT_EQ(select("v0").value()[0].deviceName, "rxe0");
    config_.devices = "rxe0,rxe1";
    EXPECT_EQ(select().value().size(), 2u);
  }).join();
  if (!made) GTEST_SKIP() << "needs root for a network namespace";
}

TEST_F(DeviceSelectionTest, Devices_Listed_ExactlyThoseInTheirOrder) {
  config_.devices = "rxe2,rxe0";
  machine_.devices = {{"rxe0", {{"10.0.0.1"}}}, {"rxe1", {{"127.0.0.1", lo_}}}, {"rxe2", {{"10.0.2.1"}}}};
  const auto selected = select("lo");
  ASSERT_TRUE(selected) << selected.error().message;
  ASSERT_EQ(selected.value().size(), 2u);
  EXPECT_EQ(selected.value()[0].deviceName, "rxe2");
  EXPECT_EQ(selected.value()[1].deviceName, "rxe0");
  EXPECT_EQ(machine_.openContexts(), 2);
}

TEST_F(DeviceSelectionTest, Devices_UnknownName_ErrorListsThoseThereAre) {
  config_.devices = "rxe0,rxe9";
  machine_.devices = {{"rxe0", {{"10.0.0.1"}}}};
  EXPECT_THAT(refusal(), AllOf(HasSubstr("'rxe9'"), HasSubstr("rxe0 (port 1 active)")));
}

TEST_F(DeviceSelectionTest, Devices_NamedTwiceOrEmpty_Refused) {
  machine_.devices = {{"rxe0", {{"10.0.0.1"}}}};
  config_.devices = "rxe0,rxe0";
  EXPECT_THAT(refusal(), HasSubstr("twice"));
  config_.devices = "rxe0,";
  EXPECT_THAT(refusal(), HasSubstr("''"));
}

TEST_F(DeviceSelectionTest, Devices_CannotBeOpened_ErrorSaysWhy) {
  config_.devices = "rxe0";
  machine_.devices = {{"rxe0", {}, {}, IBV_LINK_LAYER_ETHERNET, EACCES}};
  EXPECT_THAT(refusal(), AllOf(HasSubstr("rxe0"), HasSubstr("Permission denied"), HasSubstr("/dev/infiniband")));
  machine_.devices[0].openError = EMFILE;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("rxe0"), HasSubstr("RLIMIT_NOFILE")));
}

TEST_F(DeviceSelectionTest, Devices_NoneOnTheMachine_ErrorSaysHowToMakeOne) {
  EXPECT_THAT(refusal(), AllOf(HasSubstr("no RDMA device"), HasSubstr("rdma link add rxe0 type rxe")));
  machine_.listError = ENOSYS;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("no RDMA device"), HasSubstr("rdma link add rxe0 type rxe")));
  machine_.listError = EPERM;
  EXPECT_THAT(refusal(), HasSubstr("Operation not permitted"));
}

TEST_F(DeviceSelectionTest, Port_Automatic_FirstActive) {
  machine_.devices = {{"mlx0",
                       {{"10.0.0.1", 0, IBV_GID_TYPE_ROCE_V2, 1}, {"10.0.0.2", 0, IBV_GID_TYPE_ROCE_V2, 2}},
                       {IBV_PORT_DOWN, IBV_PORT_ACTIVE}}};
  EXPECT_EQ(select().value()[0].port, 2);
}

TEST_F(DeviceSelectionTest, Port_Configured_TakenOrRefusedWithItsState) {
  machine_.devices = {
      {"mlx0", {{"10.0.0.1", 0, IBV_GID_TYPE_ROCE_V2, 3}}, {IBV_PORT_ACTIVE, IBV_PORT_ARMED, IBV_PORT_ACTIVE}}};
  config_.port = 3;
  EXPECT_EQ(select().value()[0].port, 3);
  config_.port = 2;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("mlx0"), HasSubstr("port 2 is armed")));
  config_.port = 4;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("no port 4"), HasSubstr("GLOO_BYPASS_RDMA_PORT")));
}

TEST_F(DeviceSelectionTest, Port_NoneActive_ErrorNamesStates) {
  config_.devices = "rxe0";
  machine_.devices = {{"rxe0", {{"10.0.0.1"}}, {IBV_PORT_DOWN}}};
  EXPECT_THAT(refusal(), AllOf(HasSubstr("rxe0"), HasSubstr("no active port"), HasSubstr("port 1 down")));
}

TEST_F(DeviceSelectionTest, GidIndex_Configured_TakenWhateverItIs) {
  machine_.devices = {{"rxe0", {{"fe80::1", lo_}, {"127.0.0.1", lo_}}}};
  config_.gidIndex = 0;
  const auto selected = select("lo");
  ASSERT_TRUE(selected) << selected.error().message;
  EXPECT_EQ(selected.value()[0].gidIndex, 0);
}

TEST_F(DeviceSelectionTest, GidIndex_EmptyOrOutOfRange_Refused) {
  machine_.devices = {{"rxe0", {{"10.0.0.1"}, {"::"}}}};
  for (const int empty : {1, 5}) {
    config_.gidIndex = empty;
    EXPECT_THAT(refusal(), AllOf(HasSubstr("GID " + std::to_string(empty) + " is empty"),
                                 HasSubstr("GLOO_BYPASS_RDMA_GID_INDEX")));
  }
  config_.gidIndex = 16;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("no GID 16"), HasSubstr("last is 15")));
}

TEST_F(DeviceSelectionTest, Gid_OnlyLinkLocalOrRoceV1_ErrorSaysWhatToDo) {
  machine_.devices = {{"rxe0", {{"fe80::1"}, {"10.0.0.1", 0, IBV_GID_TYPE_ROCE_V1}}}};
  EXPECT_THAT(refusal(), AllOf(HasSubstr("rxe0"), HasSubstr("RoCEv2"), HasSubstr("GLOO_BYPASS_RDMA_GID_INDEX")));
}

TEST_F(DeviceSelectionTest, Gid_InfiniBand_IndexZero) {
  machine_.devices = {{"mlx0",
                       {{"fe80::2:c903:1:2345", 0, IBV_GID_TYPE_IB}, {"fec0::1", 0, IBV_GID_TYPE_IB}},
                       {IBV_PORT_ACTIVE},
                       IBV_LINK_LAYER_INFINIBAND}};
  const auto selected = select();
  ASSERT_TRUE(selected) << selected.error().message;
  EXPECT_EQ(selected.value()[0].gidIndex, 0);
}

}  // namespace
}  // namespace gloo_bypass::verbs
