// Gloo's ring schedule over one long edge (transport/README.md): what a transport must not add to it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "simulation/host.h"
#include "tests/sim/pair.h"

namespace gloo_bypass::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// One rank of Gloo's ring all-reduce (gloo/allreduce.cc): iteration i waits for the receive and the send of iteration
// i - 2, then posts its own. Reduction costs nothing here.
class RingRank {
 public:
  RingRank(Host& toNext, Host& fromPrevious, std::size_t segmentBytes, int iterations)
      : toNext_(toNext),
        fromPrevious_(fromPrevious),
        iterations_(iterations),
        data_(segmentBytes),
        sink_(segmentBytes) {
    toNext_.setObserver([this](const SessionEvent& event) {
      if (event.type != SessionEvent::Type::kSendComplete) return;
      ++sent_;
      advance();
    });
    fromPrevious_.setObserver([this](const SessionEvent& event) {
      if (event.type != SessionEvent::Type::kReceiveComplete) return;
      ++received_;
      advance();
    });
  }

  void advance() {
    while (posted_ < iterations_ && std::min(sent_, received_) >= posted_ - 1) {
      const auto token = static_cast<OperationToken>(posted_++);
      fromPrevious_.operate([&](Session& session, TimePoint now) {
        ASSERT_TRUE(session.postReceive(now, {token, kKey, sink_.data(), sink_.size(), false}).ok());
      });
      toNext_.operate([&](Session& session, TimePoint now) {
        ASSERT_TRUE(session.postSend(now, {token, kKey, data_.data(), data_.size(), 0}).ok());
      });
    }
  }
  bool done() const { return sent_ >= iterations_ && received_ >= iterations_; }
  int received() const { return received_; }

 private:
  static constexpr MessageKey kKey{MessageKind::kUnbound, 77};

  Host& toNext_;
  Host& fromPrevious_;
  const int iterations_;
  std::vector<std::byte> data_, sink_;
  int posted_ = 0, sent_ = 0, received_ = 0;
};

// A ring of sessions: edge i joins rank i to rank i + 1.
class Ring {
 public:
  Ring(const std::vector<LinkModel>& edges, const SessionConfig& config, std::size_t segmentBytes, int iterations) {
    const std::size_t size = edges.size();
    for (std::size_t i = 0; i < size; ++i) {
      links_.push_back(std::make_unique<Link>(simulation, edges[i], 2 * i + 1));
      links_.push_back(std::make_unique<Link>(simulation, edges[i], 2 * i + 2));
      hosts_.push_back(std::make_unique<Host>(simulation, config, 2 * i + 1, Random(2 * i + 1).next()));
      hosts_.push_back(std::make_unique<Host>(simulation, config, 2 * i + 2, Random(2 * i + 2).next()));
      Host& left = *hosts_[2 * i];
      Host& right = *hosts_[2 * i + 1];
      left.attach(*links_[2 * i], right);
      right.attach(*links_[2 * i + 1], left);
      left.connect(right, 8972);
      right.connect(left, 8972);
    }
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t previousEdge = (i + size - 1) % size;
      ranks_.push_back(std::make_unique<RingRank>(*hosts_[2 * i], *hosts_[2 * previousEdge + 1], segmentBytes, iterations));
    }
  }
  void start() {
    simulation.runFor(seconds(2));  // all connected
    for (auto& rank : ranks_) rank->advance();
  }
  bool done() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->done(); });
  }
  int progress() const { return ranks_.front()->received(); }
  std::size_t maxMemoryBytes() const {
    std::size_t most = 0;
    for (const auto& host : hosts_) most = std::max(most, host->maxMemoryBytes());
    return most;
  }

  Simulation simulation;

 private:
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<RingRank>> ranks_;
};

class RingSchedule : public testing::TestWithParam<std::size_t> {};

// The bound is 2 N iterations in each one-way delay of the long edge. A transport that waits for acknowledgements or grants
// gets 2 or fewer, whatever N.
TEST_P(RingSchedule, OneLongEdge_RunsAtTwoIterationsARankAndDelay) {
  const std::size_t ranks = GetParam();
  constexpr Duration kOneWay = milliseconds(300);
  LinkModel local;
  local.setBytesPerSecond(1.25e9);
  local.delay = microseconds(25);
  LinkModel wan;
  wan.setBytesPerSecond(1.25e9);
  wan.delay = kOneWay;
  wan.queueBytes = 64 << 20;
  std::vector<LinkModel> edges(ranks, local);
  edges[0] = wan;
  const int iterations = static_cast<int>(ranks) * 2 * 24;
  const SessionConfig config;
  Ring ring(edges, config, 1 << 20, iterations);
  ring.start();
  // The congestion window opens first; the steady state counts.
  ring.simulation.runFor(20 * kOneWay);
  const int before = ring.progress();
  ring.simulation.runFor(8 * kOneWay);
  const double perDelay = (ring.progress() - before) / 8.0;
  const double bound = 2.0 * static_cast<double>(ranks);
  EXPECT_GT(perDelay, 0.75 * bound);
  EXPECT_LE(perDelay, 1.05 * bound);
  ASSERT_TRUE(ring.simulation.runUntil(ring.simulation.now() + 60 * kOneWay, [&] { return ring.done(); }));
  EXPECT_LE(ring.maxMemoryBytes(), memoryBound(config, true));
}

INSTANTIATE_TEST_SUITE_P(Ranks, RingSchedule, testing::Values(std::size_t{4}, std::size_t{8}),
                         [](const auto& info) { return std::to_string(info.param); });

TEST(Ring, EightRanksInARack_Finish) {
  LinkModel local;
  local.setBytesPerSecond(1.25e9);
  local.delay = microseconds(25);
  local.queueBytes = 1 << 20;
  Ring ring(std::vector<LinkModel>(8, local), SessionConfig{}, 1 << 20, 64);
  ring.start();
  // 64 MiB through each link take 54 ms at line rate.
  EXPECT_TRUE(ring.simulation.runUntil(ring.simulation.now() + milliseconds(100), [&] { return ring.done(); }))
      << ring.progress() << " of 64 iterations";
}

}  // namespace
}  // namespace gloo_bypass::sim
