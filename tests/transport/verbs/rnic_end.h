// Two ends of a connection on the software adapter, for its own tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/software_rnic.h"

namespace gloo_bypass::test {

// Longer than a loaded machine needs.
inline constexpr std::chrono::seconds kRnicPatience{20};

struct EndOptions {
  std::string device = "soft0";
  std::uint32_t maxSends = 16;
  std::uint32_t maxSendSegments = 4;
  std::uint32_t maxInlineBytes = 64;
  std::uint32_t maxReceives = 16;
  int completions = 128;
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  ibv_mtu mtu = IBV_MTU_4096;
  std::uint8_t maxReads = 16;  // in either direction
  std::uint8_t timeout = 8;    // 1 ms
  std::uint8_t retries = 2;
  std::uint8_t rnrTimer = 1;  // 10 us
  std::uint8_t rnrRetries = 3;
  std::uint32_t packetSequence = 77;
};

// One process' side: its own context and everything on it. Destroyed in good order.
class RnicEnd {
 public:
  explicit RnicEnd(const EndOptions& options = {});
  ~RnicEnd();
  RnicEnd(const RnicEnd&) = delete;
  RnicEnd& operator=(const RnicEnd&) = delete;

  // 0 or an errno.
  int toInit();
  int toReadyToReceive(const RnicEnd& peer);
  int toReadyToSend();
  int toError();
  ibv_qp_attr readyToReceive(const RnicEnd& peer) const;  // and its mask
  static constexpr int kReadyToReceiveMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

  ibv_mr* expose(std::vector<std::byte>& memory, int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  // All of `memory`, or a part of it.
  static ibv_sge part(const ibv_mr* region, std::size_t offset = 0, std::size_t length = SIZE_MAX);

  int post(ibv_wr_opcode opcode, std::uint64_t id, std::vector<ibv_sge> segments, unsigned flags = IBV_SEND_SIGNALED,
           const ibv_mr* remote = nullptr, std::size_t remoteOffset = 0);
  int postReceive(std::uint64_t id, std::vector<ibv_sge> segments);

  // The next completion, within kRnicPatience.
  ibv_wc completion();
  ibv_wc_status status() { return completion().status; }
  bool isQuiet();                              // no completion now
  std::optional<ibv_event_type> asyncEvent();  // the next one, acknowledged; within kRnicPatience

  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* completions = nullptr;
  ibv_qp* queuePair = nullptr;
  std::vector<ibv_mr*> regions;
  const EndOptions options;
  ibv_gid gid{};
};

// Both ready to send to each other.
void join(RnicEnd& a, RnicEnd& b);

// Whether it became true within kRnicPatience.
bool eventually(const std::function<bool()>& condition);

std::vector<std::byte> patterned(std::size_t size, int seed);

class SoftwareRnicTest : public ::testing::Test {
 protected:
  void SetUp() override { rnic.reset(); }
  void TearDown() override {
    a.reset();
    b.reset();
    EXPECT_EQ(rnic.liveObjects().describe(), "nothing");
    rnic.reset();
  }
  void connect(const EndOptions& forA = {}, const EndOptions& forB = {}) {
    a = std::make_unique<RnicEnd>(forA);
    b = std::make_unique<RnicEnd>(forB);
    join(*a, *b);
  }

  const verbs::VerbsApi& verbs = softwareVerbs();
  SoftwareRnic& rnic = SoftwareRnic::instance();
  std::unique_ptr<RnicEnd> a, b;
};

}  // namespace gloo_bypass::test
