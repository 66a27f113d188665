// Gloo's older buffers, bound to a pair and a slot.
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include <gloo/common/error.h>
#include <gloo/common/logging.h>
#include <gloo/transport/buffer.h>
#include <gloo/transport/pair.h>

#include "tests/conformance/backend.h"

namespace gloo_bypass::test {
namespace {

constexpr int kSlot = 7;

class BoundBuffer : public Conformance {};

// One-sided: the left neighbour may write again only after a notice that the value has been taken.
TEST_P(BoundBuffer, Ring_ManyRounds_PassesTheValueOn) {
  for (int size = 2; size <= 4; ++size) {
    run(size, [](const ContextPtr& context) {
      int out = context->rank, in = -1, taken = 0, free = 0;
      auto& left = context->getPair((context->rank + context->size - 1) % context->size);
      auto& right = context->getPair((context->rank + 1) % context->size);
      auto receive = left->createRecvBuffer(kSlot, &in, sizeof(in));
      auto tell = left->createSendBuffer(kSlot + 1, &taken, sizeof(taken));
      auto send = right->createSendBuffer(kSlot, &out, sizeof(out));
      auto told = right->createRecvBuffer(kSlot + 1, &free, sizeof(free));
      for (int round = 0; round < 50; ++round) {
        send->send();
        receive->waitRecv();
        send->waitSend();
        out = in;
        tell->send();
        told->waitRecv();
        tell->waitSend();
      }
      EXPECT_EQ((context->rank + 50 * (context->size - 1)) % context->size, in);
    });
  }
}

TEST_P(BoundBuffer, PartialSend_WithRemoteOffset_LandsThere) {
  run(2, [](const ContextPtr& context) {
    std::vector<std::uint8_t> data(100);
    if (context->rank == 0) {
      std::iota(data.begin(), data.end(), std::uint8_t{0});
      auto buffer = context->getPair(1)->createSendBuffer(kSlot, data.data(), data.size());
      buffer->send(10, 20, 50);
      buffer->send(90, 10, 0);
      buffer->send(0, 0, 100);
      for (int i = 0; i < 3; ++i) buffer->waitSend();
    } else {
      std::fill(data.begin(), data.end(), std::uint8_t{255});
      auto buffer = context->getPair(0)->createRecvBuffer(kSlot, data.data(), data.size());
      for (int i = 0; i < 3; ++i) buffer->waitRecv();
      for (std::size_t i = 0; i < data.size(); ++i) {
        const std::size_t expected = i < 10 ? 90 + i : i >= 50 && i < 70 ? i - 40 : 255;
        ASSERT_EQ(expected, data[i]) << i;
      }
    }
  });
}

TEST_P(BoundBuffer, LargeThenSmall_OneSlot_CompleteInOrder) {
  constexpr std::size_t kLarge = 3 << 20;
  run(2, [](const ContextPtr& context) {
    std::vector<std::uint8_t> data(kLarge + 1, context->rank == 0 ? 1 : 0);
    if (context->rank == 0) {
      auto buffer = context->getPair(1)->createSendBuffer(kSlot, data.data(), data.size());
      buffer->send(0, kLarge, 0);
      buffer->send(kLarge, 1, kLarge);
      buffer->waitSend();
      buffer->waitSend();
    } else {
      auto buffer = context->getPair(0)->createRecvBuffer(kSlot, data.data(), data.size());
      buffer->waitRecv();
      EXPECT_EQ(static_cast<std::ptrdiff_t>(kLarge), std::count(data.begin(), data.end() - 1, 1));
      buffer->waitRecv();
      EXPECT_EQ(1, data[kLarge]);
    }
  });
}

TEST_P(BoundBuffer, SendBeforeTheReceiverExists_Arrives) {
  std::barrier turn(2);
  for (const std::size_t bytes : {std::size_t{4}, std::size_t{4} << 20}) {
    run(2, [&](const ContextPtr& context) {
      std::vector<char> data(bytes, context->rank == 0 ? 'x' : ' ');
      if (context->rank == 0) {
        auto buffer = context->getPair(1)->createSendBuffer(kSlot, data.data(), bytes);
        buffer->send();
        turn.arrive_and_wait();
        buffer->waitSend();
      } else {
        turn.arrive_and_wait();
        auto buffer = context->getPair(0)->createRecvBuffer(kSlot, data.data(), bytes);
        buffer->waitRecv();
        EXPECT_EQ(static_cast<std::ptrdiff_t>(bytes), std::count(data.begin(), data.end(), 'x'));
      }
    });
  }
}

// Gloo's algorithms do not wait for everything they send.
TEST_P(BoundBuffer, DestroyedAfterSend_WithoutWait_StillArrives) {
  run(2, [](const ContextPtr& context) {
    int ready = 0;
    auto& pair = context->getPair(1 - context->rank);
    auto wanted = context->rank == 0 ? pair->createRecvBuffer(kSlot + 1, &ready, sizeof(ready)) : nullptr;
    auto want = context->rank == 1 ? pair->createSendBuffer(kSlot + 1, &ready, sizeof(ready)) : nullptr;
    for (const std::size_t bytes : {std::size_t{4}, std::size_t{1} << 20}) {
      if (bytes > 4 && GetParam().reference) return;  // TCP uses the freed buffer
      std::vector<char> data(bytes, context->rank == 0 ? 'y' : ' ');
      if (context->rank == 0) {
        wanted->waitRecv();
        auto buffer = pair->createSendBuffer(kSlot, data.data(), bytes);
        buffer->send();
        buffer.reset();
        std::fill(data.begin(), data.end(), 'n');
      } else {
        auto buffer = pair->createRecvBuffer(kSlot, data.data(), bytes);
        want->send();
        buffer->waitRecv();
        EXPECT_EQ(static_cast<std::ptrdiff_t>(bytes), std::count(data.begin(), data.end(), 'y'));
        want->waitSend();
      }
    }
  });
}

TEST_P(BoundBuffer, BoundAndUnbound_SameSlotNumber_DoNotMix) {
  run(2, [](const ContextPtr& context) {
    const int peer = 1 - context->rank;
    int boundOut = 100 + context->rank, boundIn = -1, out = 200 + context->rank, in = -1;
    auto& pair = context->getPair(peer);
    auto boundReceive = pair->createRecvBuffer(kSlot, &boundIn, sizeof(boundIn));
    auto boundSend = pair->createSendBuffer(kSlot, &boundOut, sizeof(boundOut));
    auto send = context->createUnboundBuffer(&out, sizeof(out));
    auto receive = context->createUnboundBuffer(&in, sizeof(in));
    send->send(peer, kSlot);
    boundSend->send();
    boundReceive->waitRecv();
    receive->recv(peer, kSlot);
    receive->waitRecv();
    send->waitSend();
    boundSend->waitSend();
    EXPECT_EQ(100 + peer, boundIn);
    EXPECT_EQ(200 + peer, in);
  });
}

TEST_P(BoundBuffer, ManySlots_EachHasItsBuffer) {
  constexpr int kBuffers = 200;
  run(2, [](const ContextPtr& context) {
    auto& pair = context->getPair(1 - context->rank);
    std::vector<int> in(kBuffers, -1), out(kBuffers);
    std::vector<std::unique_ptr<::gloo::transport::Buffer>> receives, sends;
    for (int i = 0; i < kBuffers; ++i) {
      const auto at = static_cast<std::size_t>(i);
      out[at] = 1000 * context->rank + i;
      receives.push_back(pair->createRecvBuffer(i, &in[at], sizeof(int)));
      sends.push_back(pair->createSendBuffer(i, &out[at], sizeof(int)));
    }
    for (auto& buffer : sends) buffer->send();
    for (int i = kBuffers; i-- > 0;) {
      const auto at = static_cast<std::size_t>(i);
      receives[at]->waitRecv();
      sends[at]->waitSend();
      EXPECT_EQ(1000 * (1 - context->rank) + i, in[at]);
    }
  });
}

TEST_P(BoundBuffer, Slot_TakenThenFreed_CanBeUsedAgain) {
  auto mesh = connectedMesh(GetParam(), 2);
  auto& pair = mesh.contexts[0]->getPair(1);
  int value = 0;
  auto buffer = pair->createRecvBuffer(kSlot, &value, sizeof(value));
  if (!GetParam().reference) {  // over TCP the refused buffer leaks
    EXPECT_THROW((void)pair->createRecvBuffer(kSlot, &value, sizeof(value)), ::gloo::EnforceNotMet);
  }
  buffer.reset();
  buffer = pair->createRecvBuffer(kSlot, &value, sizeof(value));
  int sent = 42;
  auto send = mesh.contexts[1]->getPair(0)->createSendBuffer(kSlot, &sent, sizeof(sent));
  send->send();
  buffer->waitRecv();
  send->waitSend();
  EXPECT_EQ(42, value);
}

TEST_P(BoundBuffer, WrongUse_IsRefused) {
  auto mesh = connectedMesh(GetParam(), 2);
  auto& pair = mesh.contexts[0]->getPair(1);
  int value = 0;
  auto buffer = pair->createSendBuffer(kSlot, &value, sizeof(value));
  EXPECT_THROW(buffer->send(0, 5), ::gloo::EnforceNotMet);
  EXPECT_THROW(buffer->send(3, 2), ::gloo::EnforceNotMet);
  EXPECT_THROW(buffer->waitSend(), ::gloo::EnforceNotMet);
  EXPECT_THROW(pair->setSync(false, false), ::gloo::InvalidOperationException);
}

class SyncMode : public Conformance {
 protected:
  void pingPong(bool busyPoll) {
    run(2, [&](const ContextPtr& context) {
      auto& pair = context->getPair(1 - context->rank);
      pair->setSync(true, busyPoll);
      int out = 0, in = -1;
      auto receive = pair->createRecvBuffer(kSlot, &in, sizeof(in));
      auto send = pair->createSendBuffer(kSlot, &out, sizeof(out));
      for (int round = 0; round < 200; ++round) {
        out = round;
        if (context->rank == 0) send->send();
        receive->waitRecv();
        ASSERT_EQ(round, in);
        if (context->rank == 1) send->send();
        send->waitSend();
      }
    });
  }
};

TEST_P(SyncMode, Blocking_PingPong_Arrives) { pingPong(false); }

TEST_P(SyncMode, BusyPoll_PingPong_Arrives) { pingPong(true); }

GLOO_BYPASS_CONFORMANCE(BoundBuffer);
GLOO_BYPASS_CONFORMANCE(SyncMode);

}  // namespace
}  // namespace gloo_bypass::test
