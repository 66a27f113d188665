// A peer that keeps to no rule: raw queue pairs, and its own control connection, against one channel. With
// `credentials` it has the keys of its rank, 1, for a victim of rank 0.
#pragma once

#include <memory>
#include <vector>

#include "tests/transport/verbs/rdma_end.h"
#include "transport/verbs/control_plane.h"
#include "transport/verbs/rdma_frame.h"

namespace gloo_bypass::test {

class HostilePeer final : private verbs::ControlObserver {
 public:
  // Connects channel `index` of `victim`; it is kConnected afterwards.
  explicit HostilePeer(RdmaEnd& victim, std::uint32_t credits = 64,
                       const std::shared_ptr<const security::Credentials>& credentials = nullptr,
                       std::size_t index = 0);
  ~HostilePeer() override;

  // A correct frame for the victim's session; then as bytes, which a test may change.
  std::vector<std::byte> frame(verbs::FrameType type, const std::function<void(verbs::RdmaFrame&)>& change = {},
                               std::size_t payload = 0);
  void send(const std::vector<std::byte>& bytes);
  void say(verbs::FrameType type, const std::function<void(verbs::RdmaFrame&)>& change = {}, std::size_t payload = 0) {
    send(frame(type, change, payload));
  }

  // The next announcement that the victim sends.
  verbs::RdmaFrame announced();
  // READs from the victim's memory, over the queue pair that is there for it.
  ibv_wc_status read(std::uint64_t address, std::uint32_t key, std::uint32_t length);

 private:
  void onPeerReady() noexcept override { ready_ = true; }
  void onPeerGone(bool, const std::string&) noexcept override {}

  static constexpr std::uint64_t kId = 1;  // the smaller one dials
  static constexpr std::size_t kSlots = 64, kSlotBytes = 16384;
  RnicEnd frames_, reads_, served_;
  std::vector<std::byte> outgoing_, incoming_;
  ibv_mr *out_ = nullptr, *in_ = nullptr;
  std::unique_ptr<verbs::ControlPlane> control_;
  std::uint64_t victim_ = 0, sent_ = 0, completed_ = 0;
  bool ready_ = false;
};

}  // namespace gloo_bypass::test
