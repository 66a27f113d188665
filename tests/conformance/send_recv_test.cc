// Unbound buffers: matching, slots, receives from any rank, sizes.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include <gloo/common/logging.h>
#include <gloo/transport/unbound_buffer.h>

#include "tests/conformance/backend.h"

namespace gloo_bypass::test {
namespace {

using BufferPtr = std::unique_ptr<::gloo::transport::UnboundBuffer>;
constexpr std::uint64_t kSlot = 0x1337;
constexpr std::uint64_t kOtherSlot = 0x2337;

class SendRecv : public Conformance {};

BufferPtr bufferOf(const ContextPtr& context, int& value) {
  return context->createUnboundBuffer(&value, sizeof(value));
}

std::vector<int> othersOf(const ContextPtr& context) {
  std::vector<int> ranks;
  for (int rank = 0; rank < context->size; ++rank) {
    if (rank != context->rank) ranks.push_back(rank);
  }
  return ranks;
}

TEST_P(SendRecv, AllToAll_BufferForEachPeer_Arrives) {
  for (int size = 2; size <= 5; ++size) {
    run(size, [](const ContextPtr& context) {
      const auto n = static_cast<std::size_t>(context->size);
      std::vector<int> in(n, context->rank), out(n, -1);
      std::vector<BufferPtr> inBuffers(n), outBuffers(n);
      for (const int peer : othersOf(context)) {
        const auto p = static_cast<std::size_t>(peer);
        inBuffers[p] = bufferOf(context, in[p]);
        outBuffers[p] = bufferOf(context, out[p]);
        inBuffers[p]->send(peer, static_cast<std::uint64_t>(context->rank));
        outBuffers[p]->recv(peer, static_cast<std::uint64_t>(peer));
      }
      for (const int peer : othersOf(context)) {
        const auto p = static_cast<std::size_t>(peer);
        int rank = -1;
        EXPECT_TRUE(inBuffers[p]->waitSend(&rank));
        EXPECT_EQ(peer, rank);
        EXPECT_TRUE(outBuffers[p]->waitRecv(&rank));
        EXPECT_EQ(peer, rank);
        EXPECT_EQ(peer, out[p]);
      }
    });
  }
}

TEST_P(SendRecv, AllToAll_OneBufferWithOffsets_Arrives) {
  run(4, [](const ContextPtr& context) {
    std::vector<int> in(static_cast<std::size_t>(context->size)), out(in.size(), -1);
    std::iota(in.begin(), in.end(), 0);
    auto inBuffer = context->createUnboundBuffer(in.data(), in.size() * sizeof(int));
    auto outBuffer = context->createUnboundBuffer(out.data(), out.size() * sizeof(int));
    for (const int peer : othersOf(context)) {
      inBuffer->send(peer, 0, static_cast<std::size_t>(context->rank) * sizeof(int), sizeof(int));
      outBuffer->recv(peer, 0, static_cast<std::size_t>(peer) * sizeof(int), sizeof(int));
    }
    for (int i = 1; i < context->size; ++i) {
      inBuffer->waitSend();
      outBuffer->waitRecv();
    }
    for (const int peer : othersOf(context)) EXPECT_EQ(peer, out[static_cast<std::size_t>(peer)]);
  });
}

TEST_P(SendRecv, EmptyThenNonEmpty_SameSlot_KeepTheirOrder) {
  run(3, [](const ContextPtr& context) {
    for (const int peer : othersOf(context)) {
      int in = context->rank, out = -1;
      auto emptyIn = context->createUnboundBuffer(nullptr, 0);
      auto emptyOut = context->createUnboundBuffer(nullptr, 0);
      auto inBuffer = bufferOf(context, in), outBuffer = bufferOf(context, out);
      emptyOut->recv(peer, kSlot);
      emptyIn->send(peer, kSlot);
      outBuffer->recv(peer, kSlot);
      inBuffer->send(peer, kSlot);
      emptyIn->waitSend();
      emptyOut->waitRecv();
      inBuffer->waitSend();
      outBuffer->waitRecv();
      EXPECT_EQ(peer, out);
    }
  });
}

// The order of send and receive decides which paths are taken below; the sizes cross every threshold.
TEST_P(SendRecv, EverySize_SendFirstAndReceiveFirst_Arrives) {
  const std::vector<std::size_t> sizes = {0, 1, 63, 1024, 1473, 9000, 32767, 32768, 65536, 1 << 20, (5 << 20) + 3};
  std::barrier turn(2);
  run(2, [&](const ContextPtr& context) {
    for (const bool sendFirst : {true, false}) {
      for (const std::size_t size : sizes) {
        std::vector<std::uint8_t> data(size);
        auto buffer = context->createUnboundBuffer(data.data(), size);
        const bool sends = context->rank == 0;
        if (sends) {
          for (std::size_t i = 0; i < size; ++i) data[i] = sample<std::uint8_t>(7, i);
        }
        if (sends != sendFirst) turn.arrive_and_wait();
        sends ? buffer->send(1, kSlot) : buffer->recv(0, kSlot);
        if (sends == sendFirst) turn.arrive_and_wait();
        sends ? buffer->waitSend() : buffer->waitRecv();
        if (sends) continue;
        for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(sample<std::uint8_t>(7, i), data[i]) << i << " of " << size;
      }
    }
  });
}

TEST_P(SendRecv, ShortMessage_IntoLargerReceive_LeavesTheRest) {
  run(2, [](const ContextPtr& context) {
    std::array<char, 64> data;
    data.fill(context->rank == 0 ? 'a' : 'b');
    auto buffer = context->createUnboundBuffer(data.data(), data.size());
    if (context->rank == 0) {
      buffer->send(1, kSlot, 0, 10);
      buffer->waitSend();
    } else {
      buffer->recv(0, kSlot);
      buffer->waitRecv();
      EXPECT_EQ(10, std::count(data.begin(), data.end(), 'a'));
      EXPECT_EQ('a', data[9]);
    }
  });
}

TEST_P(SendRecv, Slots_DifferingInTheUpperHalf_AreDistinct) {
  run(2, [](const ContextPtr& context) {
    const std::vector<std::uint64_t> slots = {
        1, 0x100000001, 0xffffffff00000001, 0x8000000000000001, 0xffffffffffffffff, 0};
    std::vector<int> values(slots.size(), -1);
    std::vector<BufferPtr> buffers;
    for (int& value : values) buffers.push_back(bufferOf(context, value));
    for (std::size_t i = 0; i < slots.size(); ++i) {
      // Received in the opposite order.
      const std::size_t at = context->rank == 0 ? i : slots.size() - 1 - i;
      if (context->rank == 0) values[at] = static_cast<int>(at);
      context->rank == 0 ? buffers[at]->send(1, slots[at]) : buffers[at]->recv(0, slots[at]);
    }
    for (std::size_t i = 0; i < slots.size(); ++i) {
      context->rank == 0 ? buffers[i]->waitSend() : buffers[i]->waitRecv();
      EXPECT_EQ(static_cast<int>(i), values[i]);
    }
  });
}

TEST_P(SendRecv, ManyMessages_OneSlot_KeepTheirOrder) {
  constexpr int kMessages = 300;
  run(2, [](const ContextPtr& context) {
    std::vector<int> values(kMessages, -1);
    std::vector<BufferPtr> buffers;
    for (int i = 0; i < kMessages; ++i) {
      if (context->rank == 0) values[static_cast<std::size_t>(i)] = i;
      buffers.push_back(bufferOf(context, values[static_cast<std::size_t>(i)]));
      context->rank == 0 ? buffers.back()->send(1, kSlot) : buffers.back()->recv(0, kSlot);
    }
    for (int i = 0; i < kMessages; ++i) {
      const auto at = static_cast<std::size_t>(i);
      context->rank == 0 ? buffers[at]->waitSend() : buffers[at]->waitRecv();
      ASSERT_EQ(i, values[at]);
    }
  });
}

// Gloo's ring has two receives on one buffer and takes the first completion for the first.
TEST_P(SendRecv, TwoReceivesOnOneBuffer_LargeThenSmall_CompleteInOrder) {
  constexpr std::size_t kLarge = 3 << 20, kSmall = 5;
  run(2, [](const ContextPtr& context) {
    for (int round = 0; round < 10; ++round) {
      std::vector<std::uint8_t> data(kLarge + kSmall, 0);
      auto buffer = context->createUnboundBuffer(data.data(), data.size());
      if (context->rank == 0) {
        std::fill(data.begin(), data.end(), std::uint8_t{1});
        buffer->send(1, kSlot, 0, kLarge);
        buffer->send(1, kSlot, kLarge, kSmall);
        buffer->waitSend();
        buffer->waitSend();
      } else {
        buffer->recv(0, kSlot, 0, kLarge);
        buffer->recv(0, kSlot, kLarge, kSmall);
        buffer->waitRecv();
        ASSERT_EQ(static_cast<std::ptrdiff_t>(kLarge), std::count(data.begin(), data.begin() + kLarge, 1));
        buffer->waitRecv();
        ASSERT_EQ(static_cast<std::ptrdiff_t>(data.size()), std::count(data.begin(), data.end(), 1));
      }
    }
  });
}

TEST_P(SendRecv, UnreceivedMessage_OtherSlot_IsNotBlocked) {
  run(2, [](const ContextPtr& context) {
    std::vector<std::uint8_t> large(2 << 20, 3);
    int small = 4;
    auto largeBuffer = context->createUnboundBuffer(large.data(), large.size());
    auto smallBuffer = bufferOf(context, small);
    if (context->rank == 0) {
      largeBuffer->send(1, kOtherSlot);
      for (int i = 0; i < 100; ++i) {
        smallBuffer->send(1, kSlot);
        smallBuffer->waitSend();
      }
      largeBuffer->waitSend();
    } else {
      std::fill(large.begin(), large.end(), std::uint8_t{0});
      for (int i = 0; i < 100; ++i) {
        smallBuffer->recv(0, kSlot);
        smallBuffer->waitRecv();
      }
      largeBuffer->recv(0, kOtherSlot);
      largeBuffer->waitRecv();
      EXPECT_EQ(static_cast<std::ptrdiff_t>(large.size()), std::count(large.begin(), large.end(), 3));
    }
  });
}

TEST_P(SendRecv, ReceiveFromAny_EveryoneSendsMany_EachArrivesOnce) {
  static constexpr int kEach = 100;
  run(5, [](const ContextPtr& context) {
    int value = -1;
    auto buffer = bufferOf(context, value);
    if (context->rank != 0) {
      for (int i = 0; i < kEach; ++i) {
        value = context->rank * kEach + i;
        buffer->send(0, kSlot);
        buffer->waitSend();
      }
      return;
    }
    std::map<int, int> nextOf;
    for (int i = 0; i < kEach * (context->size - 1); ++i) {
      int rank = -1;
      buffer->recv(othersOf(context), kSlot);
      buffer->waitRecv(&rank);
      ASSERT_EQ(rank * kEach + nextOf[rank]++, value);
    }
    for (const int peer : othersOf(context)) EXPECT_EQ(kEach, nextOf[peer]);
  });
}

// A token on the same pair, received directly, shows that the announcement before it has arrived.
TEST_P(SendRecv, ReceiveFromAny_SeveralAnnounced_TakesThemInThatOrder) {
  const std::vector<int> order = {3, 1, 4, 2};
  std::barrier turn(5);
  run(5, [&](const ContextPtr& context) {
    int value = context->rank, token = 0;
    auto buffer = bufferOf(context, value), tokenBuffer = bufferOf(context, token);
    for (const int sender : order) {
      if (context->rank == sender) {
        buffer->send(0, kSlot);
        tokenBuffer->send(0, kOtherSlot);
        tokenBuffer->waitSend();
      } else if (context->rank == 0) {
        tokenBuffer->recv(sender, kOtherSlot);
        tokenBuffer->waitRecv();
      }
      turn.arrive_and_wait();
    }
    if (context->rank != 0) {
      buffer->waitSend();
      return;
    }
    for (const int sender : order) {
      int rank = -1;
      buffer->recv(othersOf(context), kSlot);
      buffer->waitRecv(&rank);
      EXPECT_EQ(sender, rank);
      EXPECT_EQ(sender, value);
    }
  });
}

TEST_P(SendRecv, ReceiveFromAny_SomeRanksOnly_LeavesTheOthers) {
  run(4, [](const ContextPtr& context) {
    int value = context->rank;
    auto buffer = bufferOf(context, value);
    if (context->rank != 0) {
      buffer->send(0, kSlot);
      buffer->waitSend();
      return;
    }
    int rank = -1;
    buffer->recv(std::vector<int>{3}, kSlot);
    buffer->waitRecv(&rank);
    EXPECT_EQ(3, rank);
    EXPECT_EQ(3, value);
    buffer->recv(std::vector<int>{2}, kSlot);
    buffer->waitRecv(&rank);
    EXPECT_EQ(2, rank);
    buffer->recv(std::vector<int>{3, 1, 2}, kSlot);
    buffer->waitRecv(&rank);
    EXPECT_EQ(1, rank);
    EXPECT_EQ(1, value);
  });
}

TEST_P(SendRecv, ReceiveFromAny_TwoBuffersPosted_BothFilled) {
  run(4, [](const ContextPtr& context) {
    std::array<int, 2> values = {context->rank, context->rank};
    auto first = bufferOf(context, values[0]), second = bufferOf(context, values[1]);
    if (context->rank != 0) {
      first->send(0, kSlot);
      second->send(0, kSlot);
      first->waitSend();
      second->waitSend();
      return;
    }
    std::vector<int> received;
    for (int i = 0; i < context->size - 1; ++i) {
      first->recv(othersOf(context), kSlot);
      second->recv(othersOf(context), kSlot);
      first->waitRecv();
      second->waitRecv();
      received.insert(received.end(), values.begin(), values.end());
    }
    std::sort(received.begin(), received.end());
    EXPECT_EQ((std::vector<int>{1, 1, 2, 2, 3, 3}), received);
  });
}

// Takes a request from whichever rank comes first, then the rest from that rank, on the same slot.
TEST_P(SendRecv, ReceiveFromAny_ThenDirect_SameSlotDoesNotMix) {
  constexpr int kRounds = 20;
  run(5, [](const ContextPtr& context) {
    std::size_t head = 0, body = 0;
    auto headBuffer = context->createUnboundBuffer(&head, sizeof(head));
    auto bodyBuffer = context->createUnboundBuffer(&body, sizeof(body));
    if (context->rank != 0) {
      for (int i = 0; i < kRounds; ++i) {
        headBuffer->send(0, kSlot, 0, 0);
        headBuffer->waitSend();
        body = static_cast<std::size_t>(context->rank);
        bodyBuffer->send(0, kSlot);
        bodyBuffer->waitSend();
      }
      return;
    }
    for (int i = 0; i < kRounds * (context->size - 1); ++i) {
      int rank = -1;
      head = 0xdeadbeef;
      headBuffer->recv(othersOf(context), kSlot, 0, 0);
      headBuffer->waitRecv(&rank);
      EXPECT_EQ(0xdeadbeef, head);
      bodyBuffer->recv(rank, kSlot);
      bodyBuffer->waitRecv();
      ASSERT_EQ(static_cast<std::size_t>(rank), body);
    }
  });
}

TEST_P(SendRecv, OutOfRange_IsRefused) {
  run(2, [](const ContextPtr& context) {
    int value = 0;
    auto buffer = bufferOf(context, value);
    const int peer = 1 - context->rank;
    EXPECT_THROW(buffer->send(peer, kSlot, 5), ::gloo::EnforceNotMet);
    EXPECT_THROW(buffer->send(peer, kSlot, 2, 3), ::gloo::EnforceNotMet);
    EXPECT_THROW(buffer->send(peer, kSlot, 8, 1), ::gloo::EnforceNotMet);
    EXPECT_THROW(buffer->recv(peer, kSlot, 5), ::gloo::EnforceNotMet);
    EXPECT_THROW(buffer->recv(peer, kSlot, 2, 3), ::gloo::EnforceNotMet);
    EXPECT_THROW(buffer->recv(std::vector<int>{peer}, kSlot, 5), ::gloo::EnforceNotMet);
    // Nothing was posted; everything continues.
    buffer->send(peer, kSlot);
    int other = -1;
    auto otherBuffer = bufferOf(context, other);
    otherBuffer->recv(peer, kSlot);
    buffer->waitSend();
    otherBuffer->waitRecv();
    EXPECT_EQ(0, other);
  });
}

GLOO_BYPASS_CONFORMANCE(SendRecv);

}  // namespace
}  // namespace gloo_bypass::test
