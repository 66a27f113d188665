// Timeouts, aborted waits, peers that close: which operations fail, how the error names them, and which continue.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <gloo/allreduce.h>
#include <gloo/common/error.h>
#include <gloo/math.h>
#include <gloo/transport/buffer.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include "tests/conformance/backend.h"

namespace gloo_bypass::test {
namespace {

using ::testing::Test;
constexpr std::uint64_t kSlot = 5;
constexpr Milliseconds kShort{50};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct IntBuffer {
  IntBuffer(const std::shared_ptr<::gloo::transport::Context>& context, int start = 0)
      : value(std::make_unique<int>(start)), buffer(context->createUnboundBuffer(value.get(), sizeof(int))) {}
  ::gloo::transport::UnboundBuffer* operator->() { return buffer.get(); }
  std::unique_ptr<int> value;
  std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;
};

// Whether the announced thread falls asleep, that is, waits.
bool fallsAsleep(const std::atomic<pid_t>& announced) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < deadline) {
    if (const pid_t thread = announced; thread != 0) {
      std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
      std::string stat;
      std::getline(file, stat);
      // The state stands behind the name in parentheses.
      const std::size_t nameEnd = stat.rfind(')');
      if (nameEnd != std::string::npos && nameEnd + 2 < stat.size() && stat[nameEnd + 2] == 'S') return true;
    }
    std::this_thread::sleep_for(Milliseconds(1));
  }
  return false;
}

class Failure : public Conformance {};

TEST_P(Failure, WaitRecv_ContextTimeout_NamesTheTimeAndClosesThePairs) {
  Mesh mesh = connectedMesh(GetParam(), 3);
  mesh.contexts[0]->setTimeout(kShort);
  IntBuffer buffer(mesh.contexts[0]);
  buffer->recv(1, kSlot);
  const auto start = std::chrono::steady_clock::now();
  const std::string text = ioExceptionOf([&] { buffer->waitRecv(); });
  EXPECT_GE(std::chrono::steady_clock::now() - start, kShort);
  EXPECT_TRUE(contains(text, "Timed out waiting 50ms for recv operation to complete")) << text;
  if (!GetParam().reference) {
    EXPECT_TRUE(contains(text, "rank 0") && contains(text, "rank 1")) << text;
  }
  // It closes every pair of the context.
  for (const int peer : {1, 2}) {
    IntBuffer later(mesh.contexts[0]);
    const std::string after = ioExceptionOf([&] { later->send(peer, kSlot); });
    EXPECT_TRUE(contains(after, "Application timeout caused pair closure")) << after;
    EXPECT_NE("", ioExceptionOf([&] { later->recv(peer, kSlot); }));
  }
  // The peers notice.
  IntBuffer theirs(mesh.contexts[2]);
  EXPECT_NE("", ioExceptionOf([&] {
              theirs->recv(0, kSlot);
              theirs->waitRecv();
            }));
}

TEST_P(Failure, WaitRecv_TimeoutOfTheCall_OverridesTheContexts) {
  Mesh mesh = connectedMesh(GetParam(), 2);
  IntBuffer buffer(mesh.contexts[0]);
  buffer->recv(1, kSlot);
  const std::string text = ioExceptionOf([&] { buffer->waitRecv(Milliseconds(30)); });
  EXPECT_TRUE(contains(text, "Timed out waiting 30ms for recv")) << text;
}

TEST_P(Failure, WaitRecv_LongerTimeoutOfTheCall_Waits) {
  Mesh mesh = connectedMesh(GetParam(), 2);
  mesh.contexts[0]->setTimeout(Milliseconds(1));
  IntBuffer buffer(mesh.contexts[0]);
  IntBuffer sent(mesh.contexts[1], 9);
  buffer->recv(1, kSlot);
  std::thread sender([&] {
    std::this_thread::sleep_for(kShort);
    sent->send(0, kSlot);
    sent->waitSend();
  });
  EXPECT_TRUE(buffer->waitRecv(kPatience));
  sender.join();
  EXPECT_EQ(9, *buffer.value);
}

TEST_P(Failure, WaitRecv_NothingPosted_TimesOut) {
  Mesh mesh = connectedMesh(GetParam(), 2);
  IntBuffer buffer(mesh.contexts[0]);
  EXPECT_TRUE(contains(ioExceptionOf([&] { buffer->waitRecv(Milliseconds(10)); }), "Timed out waiting 10ms"));
}

TEST_P(Failure, WaitRecv_NoTimeoutValue_LooksOnce) {
  Mesh mesh = connectedMesh(GetParam(), 2);
  IntBuffer buffer(mesh.contexts[0]);
  buffer->recv(1, kSlot);
  EXPECT_TRUE(contains(ioExceptionOf([&] { buffer->waitRecv(::gloo::kNoTimeout); }), "Timed out waiting 0ms"));
}

TEST_P(Failure, WaitSend_LargeAndNobodyReceives_TimesOut) {
  if (!GetParam().largeSendWaits) GTEST_SKIP() << "sends are buffered here";
  Mesh mesh = connectedMesh(GetParam(), 2);
  std::vector<char> data(8 << 20);
  auto buffer = mesh.contexts[0]->createUnboundBuffer(data.data(), data.size());
  buffer->send(1, kSlot);
  const std::string text = ioExceptionOf([&] { buffer->waitSend(kShort); });
  EXPECT_TRUE(contains(text, "Timed out waiting 50ms for send operation to complete")) << text;
}

TEST_P(Failure, BoundWaitRecv_Timeout_FailsThatPairOnly) {
  // A pair has one timeout, to connect and to wait.
  Mesh mesh = connectedMesh(GetParam(), 3, /*timeout=*/Milliseconds(6000));
  int value = 0, other = 0, sent = 11;
  auto buffer = mesh.contexts[0]->getPair(1)->createRecvBuffer(3, &value, sizeof(value));
  const std::string text = ioExceptionOf([&] { buffer->waitRecv(); });
  EXPECT_TRUE(contains(text, "Read timeout")) << text;
  EXPECT_NE("", ioExceptionOf([&] { buffer->waitRecv(); }));
  auto receive = mesh.contexts[0]->getPair(2)->createRecvBuffer(3, &other, sizeof(other));
  auto send = mesh.contexts[2]->getPair(0)->createSendBuffer(3, &sent, sizeof(sent));
  send->send();
  receive->waitRecv();
  send->waitSend();
  EXPECT_EQ(11, other);
}

TEST_P(Failure, AbortWaitRecv_WhileWaiting_ReturnsFalseAndLeavesTheReceivePosted) {
  Mesh mesh = connectedMesh(GetParam(), 2);
  IntBuffer buffer(mesh.contexts[0]), sent(mesh.contexts[1], 6);
  buffer->recv(1, kSlot);
  std::atomic<bool> completed{true};
  std::atomic<pid_t> waiting{0};
  std::thread waiter([&] {
    waiting = ::gettid();
    completed = buffer->waitRecv();
  });
  EXPECT_TRUE(fallsAsleep(waiting));
  buffer->abortWaitRecv();
  waiter.join();
  EXPECT_FALSE(completed);
  sent->send(0, kSlot);
  EXPECT_TRUE(buffer->waitRecv());
  EXPECT_EQ(6, *buffer.value);
  sent->waitSend();
}

TEST_P(Failure, AbortBeforeTheWait_AbortsTheNextOneOnly) {
  Mesh mesh = connectedMesh(GetParam(), 2);
  IntBuffer buffer(mesh.contexts[0], 3), received(mesh.contexts[1]);
  buffer->abortWaitSend();
  EXPECT_FALSE(buffer->waitSend());
  buffer->send(1, kSlot);
  received->recv(0, kSlot);
  EXPECT_TRUE(buffer->waitSend());
  EXPECT_TRUE(received->waitRecv());
  received->abortWaitRecv();
  EXPECT_FALSE(received->waitRecv());
  EXPECT_EQ(3, *received.value);
}

TEST_P(Failure, PeerCloses_PendingReceive_FailsPromptlyAndTheOthersGoOn) {
  Mesh mesh = connectedMesh(GetParam(), 3);
  IntBuffer fromLeaver(mesh.contexts[0]), fromStayer(mesh.contexts[0]), sent(mesh.contexts[2], 8);
  fromLeaver->recv(1, kSlot);
  fromStayer->recv(2, kSlot);
  mesh.contexts[1].reset();
  const std::string text = ioExceptionOf([&] { fromLeaver->waitRecv(); });
  EXPECT_TRUE(contains(text, "closed by peer") || (GetParam().reference && contains(text, "reset by peer"))) << text;
  if (!GetParam().reference) {
    EXPECT_TRUE(contains(text, "rank 1")) << text;
  }
  IntBuffer later(mesh.contexts[0]);
  EXPECT_NE("", ioExceptionOf([&] { later->recv(1, kSlot); }));
  EXPECT_NE("", ioExceptionOf([&] { later->send(1, kSlot); }));
  // Operations with rank 2 are unaffected.
  sent->send(0, kSlot);
  EXPECT_TRUE(fromStayer->waitRecv());
  EXPECT_TRUE(sent->waitSend());
  EXPECT_EQ(8, *fromStayer.value);
}

TEST_P(Failure, PeerCloses_BoundReceive_FailsPromptly) {
  Mesh mesh = connectedMesh(GetParam(), 2);
  int value = 0;
  auto buffer = mesh.contexts[0]->getPair(1)->createRecvBuffer(3, &value, sizeof(value));
  auto send = mesh.contexts[0]->getPair(1)->createSendBuffer(4, &value, sizeof(value));
  mesh.contexts[1].reset();
  EXPECT_NE("", ioExceptionOf([&] { buffer->waitRecv(); }));
  EXPECT_NE("", ioExceptionOf([&] { send->send(); }));
}

// A message of rank 1 on another slot, received, shows that those before it have arrived.
void awaitWhatRank1Sent(Mesh& mesh) {
  IntBuffer token(mesh.contexts[1]), received(mesh.contexts[0]);
  token->send(0, kSlot + 1);
  received->recv(1, kSlot + 1);
  EXPECT_TRUE(received->waitRecv(kPatience));
}

TEST_P(Failure, ReceiveFromAny_AMessageThatWaitsDoesNotFit_SaysSoAtOnce) {
  if (GetParam().reference) GTEST_SKIP() << "Gloo's own ends the process";
  Mesh mesh = connectedMesh(GetParam(), 3);
  std::vector<char> in(100), out(10);
  auto send = mesh.contexts[1]->createUnboundBuffer(in.data(), in.size());
  send->send(0, kSlot);
  awaitWhatRank1Sent(mesh);
  auto receive = mesh.contexts[0]->createUnboundBuffer(out.data(), out.size());
  const std::string text = ioExceptionOf([&] {
    receive->recv({1, 2}, kSlot);
    receive->waitRecv(kPatience);
  });
  EXPECT_TRUE(contains(text, "100 bytes")) << text;
}

TEST_P(Failure, BoundBufferMadeAfterAMessageThatFitsAndOneThatDoesNot_Fails) {
  if (GetParam().reference) GTEST_SKIP() << "Gloo's own ends the process";
  Mesh mesh = connectedMesh(GetParam(), 2);
  std::vector<char> in(100), out(10);
  auto send = mesh.contexts[1]->getPair(0)->createSendBuffer(1, in.data(), in.size());
  send->send(0, 5, /*roffset=*/0);
  send->send(0, 5, /*roffset=*/6);
  awaitWhatRank1Sent(mesh);
  auto receive = mesh.contexts[0]->getPair(1)->createRecvBuffer(1, out.data(), out.size());
  EXPECT_NE("", ioExceptionOf([&] {
              receive->waitRecv();
              receive->waitRecv();
            }));
}

TEST_P(Failure, ClosedByUs_LaterOperations_Fail) {
  if (GetParam().reference) GTEST_SKIP() << "over TCP an unbound send on a closed pair ends in EnforceNotMet";
  Mesh mesh = connectedMesh(GetParam(), 2);
  int value = 0;
  auto bound = mesh.contexts[0]->getPair(1)->createSendBuffer(3, &value, sizeof(value));
  IntBuffer pending(mesh.contexts[0]), later(mesh.contexts[0]);
  pending->recv(1, kSlot);
  mesh.contexts[0]->getPair(1)->close();
  EXPECT_TRUE(contains(ioExceptionOf([&] { pending->waitRecv(); }), "Socket closed"));
  EXPECT_TRUE(contains(ioExceptionOf([&] { later->send(1, kSlot); }), "Socket closed"));
  EXPECT_TRUE(contains(ioExceptionOf([&] { later->recv(1, kSlot); }), "Socket closed"));
  EXPECT_TRUE(contains(ioExceptionOf([&] { bound->send(); }), "Socket closed"));
  EXPECT_NE("", ioExceptionOf([&] { mesh.contexts[0]->getPair(1)->setSync(true, false); }));
  mesh.contexts[0]->getPair(1)->close();
  IntBuffer theirs(mesh.contexts[1]);
  EXPECT_NE("", ioExceptionOf([&] {
              theirs->recv(0, kSlot);
              theirs->waitRecv();
            }));
}

// A failing collective destroys its buffers; under ASan and with late messages this shows whether they are released.
TEST_P(Failure, Allreduce_RankMissing_FailsEveryoneAndFreesTheBuffers) {
  Mesh mesh = connectedMesh(GetParam(), 2);
  auto contexts = connectedContexts(GetParam(), 3);
  inThreads(2, [&](int rank) {
    const auto& context = contexts[static_cast<std::size_t>(rank)];
    context->setTimeout(Milliseconds(300));
    auto data = std::make_unique<std::vector<float>>(1 << 18, 1.0f);
    ::gloo::AllreduceOptions options(context);
    options.setOutput(data->data(), data->size());
    options.setReduceFunction(
        [](void* c, const void* a, const void* b, std::size_t n) { ::gloo::sum<float>(c, a, b, n); });
    EXPECT_NE("", ioExceptionOf([&] { ::gloo::allreduce(options); }));
  });
}

TEST_P(Failure, Connect_ToItself_IsInvalid) {
  auto device = GetParam().makeDevice();
  auto context = device->createContext(0, 2);
  context->setTimeout(kPatience);
  auto& pair = context->createPair(1);
  const auto own = pair->address().bytes();
  if (GetParam().reference) {
    EXPECT_THROW(pair->connect(own), std::exception);  // Gloo's generations differ in which
  } else {
    EXPECT_THROW(pair->connect(own), ::gloo::InvalidOperationException);
  }
}

TEST_P(Failure, Connect_ToNonsense_Throws) {
  if (GetParam().reference) GTEST_SKIP() << "over TCP a well-sized address of nonsense is connected to";
  for (const std::size_t size : {0, 1, 2, 100, 136, 192, 514, 1000}) {
    auto device = GetParam().makeDevice();
    auto context = device->createContext(0, 2);
    context->setTimeout(Milliseconds(200));
    auto& pair = context->createPair(1);
    EXPECT_NE("", ioExceptionOf([&] { pair->connect(std::vector<char>(size, 'z')); })) << size;
  }
}

TEST_P(Failure, Connect_PeerNeverDoes_TimesOut) {
  if (GetParam().reference) GTEST_SKIP() << "over TCP the kernel accepts for it";
  auto device = GetParam().makeDevice();
  auto other = GetParam().makeDevice();
  auto context = device->createContext(0, 2);
  auto peers = other->createContext(1, 2);
  context->setTimeout(Milliseconds(100));
  auto& pair = context->createPair(1);
  const auto address = peers->createPair(0)->address().bytes();
  const std::string text = ioExceptionOf([&] { pair->connect(address); });
  EXPECT_TRUE(contains(text, "rank 1")) << text;
  IntBuffer buffer(context);
  EXPECT_NE("", ioExceptionOf([&] { buffer->send(1, kSlot); }));
}

GLOO_BYPASS_CONFORMANCE(Failure);

}  // namespace
}  // namespace gloo_bypass::test
