// A program's own messages: torch.distributed's send and recv.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tests/collectives/network/ranks.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {
namespace {

using test::inThreads;
using test::Medium;
using test::soon;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Network_Messages : public ::testing::TestWithParam<Medium> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Network_Messages);
INSTANTIATE_TEST_SUITE_P(Media, Network_Messages, ::testing::ValuesIn(test::media()), test::nameOf);

using Bytes = std::vector<std::byte>;
Bytes bytesOf(std::size_t length, int seed) {
  Bytes bytes(length);
  for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(7 * i + static_cast<std::size_t>(seed));
  return bytes;
}

struct Outcome {
  Status status;
  int peer;
};
Outcome finish(NetworkExecutor& executor, const Message& message, bool sends) {
  std::optional<Outcome> outcome;
  const auto done = [&](Status status, int peer) { outcome = {std::move(status), peer}; };
  sends ? executor.send(message, done) : executor.receive(message, done);
  EXPECT_TRUE(executor.wait([&] { return outcome.has_value(); }, soon()));
  return outcome.value_or(Outcome{Status(ErrorScope::kOperation, ErrorCode::kTimedOut, "the test's patience"), -1});
}
Outcome send(NetworkExecutor& executor, int peer, std::uint32_t tag, Bytes bytes) {
  return finish(executor, {peer, tag, bytes.data(), bytes.size()}, true);
}
Outcome receive(NetworkExecutor& executor, int peer, std::uint32_t tag, Bytes& bytes) {
  return finish(executor, {peer, tag, bytes.data(), bytes.size()}, false);
}

TEST_P(Network_Messages, OfAnyLength_ArriveInOrderBesideCollectives) {
  auto executors = test::connected(GetParam(), 2);
  inThreads(2, [&](int rank) {
    NetworkExecutor& executor = *executors[static_cast<std::size_t>(rank)];
    for (const std::size_t length : {0, 1, 1000, 200'000}) {
      for (int round = 0; round < 2; ++round) {
        Bytes bytes(length);
        if (rank == 0) {
          EXPECT_TRUE(send(executor, 1, 0xffffffff, bytesOf(length, round)).status.ok());
        } else {
          const Outcome outcome = receive(executor, 0, 0xffffffff, bytes);
          EXPECT_TRUE(outcome.status.ok());
          EXPECT_EQ(outcome.peer, 0);
          EXPECT_EQ(bytes, bytesOf(length, round));
        }
        EXPECT_TRUE(executor.run({}, soon()).ok());
      }
    }
  });
}

TEST_P(Network_Messages, FromAny_TakesEachSendersOnce) {
  constexpr int kSize = 4;
  for (const bool early : {true, false}) {
    auto executors = test::connected(GetParam(), kSize);
    inThreads(kSize, [&](int rank) {
      NetworkExecutor& executor = *executors[static_cast<std::size_t>(rank)];
      if (rank > 0) {
        EXPECT_TRUE(send(executor, 0, 5, bytesOf(100, rank)).status.ok());
        EXPECT_TRUE(executor.run({}, soon()).ok());
        return;
      }
      if (!early) {
        EXPECT_TRUE(executor.run({}, soon()).ok());
      }
      std::vector<int> senders;
      for (int i = 1; i < kSize; ++i) {
        Bytes bytes(100);
        const Outcome outcome = receive(executor, Message::kAnyPeer, 5, bytes);
        ASSERT_TRUE(outcome.status.ok()) << outcome.status.error().message;
        EXPECT_EQ(bytes, bytesOf(100, outcome.peer));
        senders.push_back(outcome.peer);
      }
      EXPECT_THAT(senders, ::testing::UnorderedElementsAre(1, 2, 3));
      if (early) {
        EXPECT_TRUE(executor.run({}, soon()).ok());
      }
    });
  }
}

TEST_P(Network_Messages, ShorterThanTheReceive_IsAnErrorOfThatReceive) {
  auto executors = test::connected(GetParam(), 2);
  inThreads(2, [&](int rank) {
    NetworkExecutor& executor = *executors[static_cast<std::size_t>(rank)];
    Bytes bytes(100);
    if (rank == 0) {
      EXPECT_TRUE(send(executor, 1, 1, Bytes(60)).status.ok());
    } else {
      const Outcome outcome = receive(executor, 0, 1, bytes);
      ASSERT_FALSE(outcome.status.ok());
      EXPECT_EQ(outcome.status.error().code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(outcome.status.error().message,
                  HasSubstr("rank 0 sent 60 bytes with tag 1, and rank 1 receives 100"));
    }
    EXPECT_TRUE(executor.run({}, soon()).ok());
  });
}

TEST_P(Network_Messages, LongerThanTheReceive_EndsTheConnection) {
  auto executors = test::connected(GetParam(), 2);
  inThreads(2, [&](int rank) {
    NetworkExecutor& executor = *executors[static_cast<std::size_t>(rank)];
    Bytes bytes(60);
    if (rank == 0) {
      (void)send(executor, 1, 1, Bytes(100));  // may have left before
    } else {
      const Outcome outcome = receive(executor, 0, 1, bytes);
      ASSERT_FALSE(outcome.status.ok());
      EXPECT_EQ(outcome.status.error().code, ErrorCode::kMessageTooLong);
      EXPECT_THAT(outcome.status.error().message, AllOf(HasSubstr("rank 0"), HasSubstr("100")));
    }
    EXPECT_FALSE(executor.run({}, soon()).ok());
  });
}

TEST_P(Network_Messages, ToNoRankOrSelf_IsRefusedAtOnce) {
  auto executors = test::connected(GetParam(), 2);
  for (const int peer : {0, 2, -2}) {
    EXPECT_EQ(send(*executors[0], peer, 0, Bytes(1)).status.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(send(*executors[0], Message::kAnyPeer, 0, Bytes(1)).status.error().code, ErrorCode::kInvalidArgument);
}

// Where the channel has announced them, to cancel one ends it, and with it the others.
TEST_P(Network_Messages, SentAndNotReceived_EndOnceWithTheGroup) {
  for (const bool aborts : {true, false}) {
    auto executors = test::connected(GetParam(), 2);
    Bytes large = bytesOf(200'000, 1), small(10);
    int ended = 0;
    const auto done = [&](const Status&, int) { ++ended; };
    for (std::uint32_t tag = 0; tag < 3; ++tag) executors[0]->send({1, tag, large.data(), large.size()}, done);
    executors[0]->send({1, 3, small.data(), small.size()}, done);
    (void)executors[1]->wait([] { return false; }, monotonicNow() + std::chrono::milliseconds(50));
    if (aborts) {
      executors[0]->abort();
    } else {
      executors[0].reset();
    }
    EXPECT_EQ(ended, 4);
  }
}

TEST_P(Network_Messages, PeerLeaves_WaitingReceivesEnd) {
  auto executors = test::connected(GetParam(), 2);
  Bytes one(1), any(1);
  std::vector<ErrorCode> codes;
  const auto done = [&](const Status& status, int) { codes.push_back(status.error().code); };
  executors[0]->receive({1, 3, one.data(), one.size()}, done);
  executors[0]->receive({Message::kAnyPeer, 4, any.data(), any.size()}, done);
  executors[1].reset();
  EXPECT_TRUE(executors[0]->wait([&] { return codes.size() == 2; }, soon()));
  EXPECT_EQ(codes, (std::vector{ErrorCode::kPeerClosed, ErrorCode::kPeerClosed}));
}

TEST_P(Network_Messages, ExecutorGoes_EndsThemAndLeavesTheMemory) {
  auto executors = test::connected(GetParam(), 2);
  Bytes bytes(1);
  std::vector<ErrorCode> codes;
  executors[0]->receive({1, 3, bytes.data(), bytes.size()},
                        [&](const Status& status, int) { codes.push_back(status.error().code); });
  executors[0].reset();
  EXPECT_EQ(codes, std::vector{ErrorCode::kCancelled});
}

}  // namespace
}  // namespace gloo_bypass::collectives
