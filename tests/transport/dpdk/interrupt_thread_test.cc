// Work in the EAL's interrupt thread, also while that thread is stopped.
#include <gtest/gtest.h>
#include <rte_alarm.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "tests/transport/dpdk/port_process.h"
#include "transport/dpdk/eal.h"
#include "transport/dpdk/ethernet_device.h"
#include "transport/dpdk/interrupt_thread.h"
#include "transport/dpdk/packet_buffers.h"

namespace gloo_bypass::dpdk {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The EAL's locks order the gate's maker and the interrupt thread; ThreadSanitizer does not see them, but sees this.
std::atomic<unsigned> gatesMade{0};

// Stops the EAL's interrupt thread until open().
class Gate {
 public:
  Gate() {
    gatesMade.fetch_add(1, std::memory_order_release);
    const auto hold = [](void* gate) {
      (void)gatesMade.load(std::memory_order_acquire);
      static_cast<Gate*>(gate)->hold();
    };
    EXPECT_EQ(rte_eal_alarm_set(1, hold, this), 0);
    EXPECT_TRUE(waitFor([this] { return held_.load(); }));
  }
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      open_ = true;
      changed_.notify_all();
    }
    EXPECT_TRUE(waitFor([this] { return left_.load(); }));
  }

 private:
  void hold() {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      held_ = true;
      EXPECT_TRUE(changed_.wait_for(lock, seconds(60), [this] { return open_; }));
    }
    left_ = true;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  std::atomic<bool> held_{false}, left_{false};
};

class InterruptThread : public ::testing::Test {
 protected:
  void SetUp() override { (void)testDirectory(); }
  void TearDown() override { removeTestDirectory(); }
  // The EAL runs in a child.
  static void withEal(const std::function<void()>& body) {
    runProcess([&] {
      ASSERT_TRUE(Eal::start(memifTestConfig()).ok());
      body();
    });
  }
};

TEST_F(InterruptThread, Work_IsDoneThereBeforeTheCallReturns) {
  withEal([] {
    pid_t thread = 0;
    EXPECT_TRUE(betweenInterrupts([&] { thread = ::gettid(); }));
    EXPECT_NE(thread, 0);
    EXPECT_NE(thread, ::gettid());
    EXPECT_FALSE(interruptsOverdue());
  });
}

TEST_F(InterruptThread, IsKeptFromRunning_TheWaitEndsAndTheWorkIsDoneLater) {
  withEal([] {
    const auto done = std::make_shared<std::atomic<int>>(0);
    Gate gate;
    EXPECT_FALSE(betweenInterrupts([done] { ++*done; }, milliseconds(20)));
    EXPECT_EQ(*done, 0);
    EXPECT_TRUE(interruptsOverdue());
    gate.open();
    EXPECT_TRUE(waitFor([&] { return *done == 1 && !interruptsOverdue(); }));
    EXPECT_TRUE(betweenInterrupts([done] { ++*done; }));
    EXPECT_EQ(*done, 2);
  });
}

TEST_F(InterruptThread, IsKeptFromRunning_ADeviceIsClosedLaterAndNoneIsMadeMeanwhile) {
  withEal([] {
    const auto pool = makePacketPool("rx", 1, 2048 + RTE_PKTMBUF_HEADROOM);
    ASSERT_TRUE(pool.ok());
    EthernetDeviceOptions options;
    options.name = "net_memif_test";
    options.vdevArguments = "role=server,id=1,socket=" + memifTestConfig().memifDirectory + ".drv,socket-abstract=no";
    options.receivePool = pool.value().get();
    auto device = EthernetDevice::create(options);
    ASSERT_TRUE(device.ok()) << device.error().message;
    {
      Gate gate;
      std::move(device).value().reset();
      EXPECT_TRUE(interruptsOverdue());
      const auto refused = EthernetDevice::create(options);
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().code, ErrorCode::kTimedOut);
      EXPECT_NE(refused.error().message.find("interrupt thread"), std::string::npos) << refused.error().message;
    }
    EXPECT_TRUE(waitFor([] { return !interruptsOverdue(); }));
    const auto again = EthernetDevice::create(options);
    EXPECT_TRUE(again.ok()) << again.error().message;
  });
}

}  // namespace
}  // namespace gloo_bypass::dpdk
