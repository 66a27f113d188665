// One rank of Gloo's ring all-reduce over two sessions: posts what RingSchedule says, when Gloo would. Sums cost no
// time, and the bytes are nobody's: all sends read one buffer, all receives write to another. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "tools/simulation/core/host.h"
#include "tools/simulation/core/ring_schedule.h"

namespace gloo_bypass::sim {

class RingRank {
 public:
  // `out` leads to the rank before this one, `in` to the one after; with two ranks both are the same. Takes their
  // observers. The buffers hold a segment at least. All must outlive the simulation's last step.
  RingRank(const RingSchedule& schedule, std::size_t rank, Host& out, Host& in, std::span<const std::byte> source,
           std::span<std::byte> sink);

  // Begins an all-reduce; the last one is done. `onDone` is called when this rank's part is.
  void start(std::function<void()> onDone);
  bool done() const { return !running_; }
  // Since the beginning, of all all-reduces.
  int receives() const { return received_; }
  std::uint64_t receivedBytes() const { return receivedBytes_; }
  // Empty, or why it cannot go on.
  const std::string& error() const { return error_; }

 private:
  static constexpr MessageKey kKey{MessageKind::kUnbound, 77};

  void onEvent(const SessionEvent& event, const Host& host);
  void advance();
  bool mayRun() const;
  void post();
  void noteFailure(const Status& status);

  const RingSchedule& schedule_;
  const std::size_t rank_;
  Host& out_;
  Host& in_;
  const std::span<const std::byte> source_;
  const std::span<std::byte> sink_;
  std::function<void()> onDone_;

  bool running_ = false, advancing_ = false;
  int half_ = 0, iteration_ = 0;
  int sendsPosted_ = 0, receivesPosted_ = 0, sent_ = 0, received_ = 0;
  // How many sends and receives there were after each of the last two iterations: messages of one key complete in
  // order.
  std::array<int, RingSchedule::kAhead> sendsUpTo_{}, receivesUpTo_{};
  std::uint64_t receivedBytes_ = 0;
  std::string error_;
};

}  // namespace gloo_bypass::sim
