// Destroys contexts, devices and buffers in every order, makes many of them, and measures their cost.
#include <sys/prctl.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/buffer.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include "tests/conformance/backend.h"
#include "transport/compatibility/gloo/rendezvous.h"

namespace gloo_bypass::test {
namespace {

constexpr std::uint64_t kSlot = 9;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // they keep freed memory
#else
constexpr bool kSanitized = false;
#endif

// The process's private memory, counted page by page: the sums in statm may lag behind by 32 pages for each processor.
// Code does not count, since the kernel drops pages of files and loads them again at will.
std::size_t privateBytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::size_t bytes = 0;
  for (std::string line; std::getline(rollup, line);) {
    std::istringstream words(line);
    std::string name;
    std::size_t kibibytes = 0;
    if (words >> name >> kibibytes && (name == "Anonymous:" || name == "Swap:")) bytes += kibibytes * 1024;
  }
  EXPECT_GT(bytes, 0u) << "no /proc/self/smaps_rollup";
  return bytes;
}

void allreduceOnce(const ContextPtr& context, std::size_t count) {
  std::vector<float> data(count, static_cast<float>(context->rank + 1));
  ::gloo::AllreduceOptions options(context);
  options.setOutput(data.data(), count);
  options.setReduceFunction(
      [](void* c, const void* a, const void* b, std::size_t n) { ::gloo::sum<float>(c, a, b, n); });
  ::gloo::allreduce(options);
  const float sum = static_cast<float>(context->size * (context->size + 1)) / 2;
  for (const float x : data) ASSERT_EQ(sum, x);
}

class Lifetime : public Conformance {};

TEST_P(Lifetime, TopLevelContextGoesFirst_UnboundBuffersGoOn) {
  Mesh mesh = connectedMesh(GetParam(), 2);
  int in = 1, out = 0;
  auto send = mesh.contexts[0]->createUnboundBuffer(&in, sizeof(in));
  auto receive = mesh.contexts[1]->createUnboundBuffer(&out, sizeof(out));
  // Local variable here, and the transport context: no one else holds a device.
  EXPECT_EQ(2, mesh.devices[0].use_count());
  mesh.contexts.clear();
  mesh.devices.clear();
  send->send(1, kSlot);
  receive->recv(0, kSlot);
  send->waitSend();
  receive->waitRecv();
  EXPECT_EQ(1, out);
}

TEST_P(Lifetime, UnboundBuffersWithPendingOperations_GoInAnyOrder) {
  for (int order = 0; order < 3; ++order) {
    Mesh mesh = connectedMesh(GetParam(), 2);
    std::vector<char> memory(1 << 20);
    auto small = mesh.contexts[0]->createUnboundBuffer(memory.data(), 16);
    auto large = mesh.contexts[0]->createUnboundBuffer(memory.data(), memory.size());
    auto receive = mesh.contexts[1]->createUnboundBuffer(memory.data(), 16);
    auto any = mesh.contexts[1]->createUnboundBuffer(memory.data(), 16);
    small->send(1, kSlot);
    large->send(1, kSlot + 1);
    receive->recv(0, kSlot + 2);
    any->recv(std::vector<int>{0}, kSlot + 3);
    if (order == 0) mesh.contexts.clear();
    if (order == 1) {
      receive.reset();
      mesh.contexts[1].reset();
    }
    large.reset();
    any.reset();
    if (order == 2) mesh.devices.clear();
    small.reset();
  }
}

TEST_P(Lifetime, BoundBuffers_OutliveTheirPairContextAndDevice) {
  if (GetParam().reference) GTEST_SKIP() << "over TCP the buffer uses its dead pair";
  Mesh mesh = connectedMesh(GetParam(), 2);
  int value = 0;
  auto& pair = mesh.contexts[0]->getPair(1);
  auto receive = pair->createRecvBuffer(1, &value, sizeof(value));
  auto send = pair->createSendBuffer(2, &value, sizeof(value));
  send->send();
  mesh.contexts[0].reset();
  mesh.devices.clear();
  EXPECT_NE("", ioExceptionOf([&] { receive->waitRecv(); }));
  EXPECT_NE("", ioExceptionOf([&] { send->send(); }));
  mesh.contexts.clear();
}

TEST_P(Lifetime, ContextReplacesAPair_OldOneCloses) {
  if (GetParam().reference) GTEST_SKIP() << "an accident there";
  Mesh mesh = connectedMesh(GetParam(), 2);
  auto first = mesh.contexts[0]->createPair(1)->address().bytes();
  auto second = mesh.contexts[1]->createPair(0)->address().bytes();
  inThreads(2, [&](int rank) {
    mesh.contexts[static_cast<std::size_t>(rank)]->getPair(1 - rank)->connect(rank == 0 ? second : first);
  });
  int in = 5, out = 0;
  auto send = mesh.contexts[0]->createUnboundBuffer(&in, sizeof(in));
  auto receive = mesh.contexts[1]->createUnboundBuffer(&out, sizeof(out));
  send->send(1, kSlot);
  receive->recv(0, kSlot);
  send->waitSend();
  receive->waitRecv();
  EXPECT_EQ(5, out);
}

TEST_P(Lifetime, ReceiveDestroyed_MessageForItCanBeReceivedLater) {
  if (GetParam().reference) GTEST_SKIP() << "over TCP the pair is stuck after it";
  Mesh mesh = connectedMesh(GetParam(), 2);
  auto gone = std::make_unique<std::vector<char>>(64);
  auto receive = mesh.contexts[1]->createUnboundBuffer(gone->data(), gone->size());
  receive->recv(0, kSlot);
  receive.reset();
  gone.reset();
  int in = 5, out = 0;
  auto send = mesh.contexts[0]->createUnboundBuffer(&in, sizeof(in));
  auto later = mesh.contexts[1]->createUnboundBuffer(&out, sizeof(out));
  send->send(1, kSlot);
  later->recv(0, kSlot);
  send->waitSend();
  later->waitRecv();
  EXPECT_EQ(5, out);
}

// As PyTorch does: a device for every process group.
TEST_P(Lifetime, ManyProcessGroups_OneAfterTheOtherAndAtOnce_Work) {
  constexpr int kGroups = 12;
  const auto store = std::make_shared<::gloo::rendezvous::HashStore>();
  inThreads(2, [&](int rank) {
    std::vector<ContextPtr> kept;
    for (int i = 0; i < kGroups; ++i) {
      const auto prefix = gloo_version::withPrefix("group" + std::to_string(i), store);
      auto device = GetParam().makeDevice();
      auto context = std::make_shared<::gloo::rendezvous::Context>(rank, 2);
      context->setTimeout(kPatience);
      gloo_version::connectFullMesh(*context, prefix, device);
      allreduceOnce(context, 100);
      if (i % 2 == 0) kept.push_back(context);
      for (const ContextPtr& old : kept) allreduceOnce(old, 10);
      ::gloo::BarrierOptions options(context);
      ::gloo::barrier(options);
    }
  });
}

TEST_P(Lifetime, OneDevice_SeveralContextsAndThreads_DoNotMix) {
  constexpr int kGroups = 4;
  std::vector<std::shared_ptr<::gloo::transport::Device>> devices = {GetParam().makeDevice(), GetParam().makeDevice()};
  const auto store = std::make_shared<::gloo::rendezvous::HashStore>();
  inThreads(2 * kGroups, [&](int thread) {
    const int rank = thread % 2, group = thread / 2;
    const auto prefix = gloo_version::withPrefix("group" + std::to_string(group), store);
    auto context = std::make_shared<::gloo::rendezvous::Context>(rank, 2);
    context->setTimeout(kPatience);
    auto device = devices[static_cast<std::size_t>(rank)];
    gloo_version::connectFullMesh(*context, prefix, device);
    for (int round = 0; round < 20; ++round) allreduceOnce(context, static_cast<std::size_t>(1 + round * (group + 1)));
    ::gloo::BarrierOptions options(context);
    ::gloo::barrier(options);
  });
}

// While it lives the kernel makes no huge pages for us: one would add up to 2 MiB of memory that the test did not
// allocate.
class NoHugePages {
 public:
  NoHugePages() { EXPECT_EQ(::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0); }
  ~NoHugePages() { ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0); }
};

TEST_P(Lifetime, ManySlots_MemoryDoesNotGrow) {
  const NoHugePages noHugePages;
  // Over DPDK the first tens of thousands of messages touch the pages of rings and pools for the first time. If each
  // message waits for timers there are fewer: on a busy machine they would take minutes.
  const bool slow = GetParam().name == "MemoryDelayed";
  const std::uint64_t warmUp = slow ? 4000 : 40000, slots = slow ? 5000 : 20000;
  const std::size_t allowedBytes = 26 * slots + 64 * 1024;
  Mesh mesh = connectedMesh(GetParam(), 2);
  int in = 1, out = 0;
  auto send = mesh.contexts[0]->createUnboundBuffer(&in, sizeof(in));
  auto receive = mesh.contexts[1]->createUnboundBuffer(&out, sizeof(out));
  std::uint64_t slot = 0;
  const auto use = [&](std::uint64_t until) {
    for (; slot < until; ++slot) {
      if (slot % 3 == 0) receive->recv(0, slot << 20);
      send->send(1, slot << 20);
      if (slot % 3 == 1) receive->recv(0, slot << 20);
      if (slot % 3 == 2) receive->recv(std::vector<int>{0}, slot << 20);
      send->waitSend();
      receive->waitRecv();
    }
  };
  // A leak shows in every round. A thread that wakes for the first time, with a stack and an arena, or a ring that a
  // pause fills further than before, shows in one.
  constexpr int kRounds = 4;
  std::size_t least = SIZE_MAX;
  use(warmUp);
  for (int round = 0; round < kRounds && least > allowedBytes; ++round) {
    const std::size_t before = privateBytes();
    use(slot + slots);
    const std::size_t after = privateBytes();
    least = std::min(least, after - std::min(before, after));
    if (kSanitized) GTEST_SKIP() << "sanitizers keep freed memory";
  }
  EXPECT_LE(least, allowedBytes) << "bytes, for " << slots << " slots";
}

GLOO_BYPASS_CONFORMANCE(Lifetime);

}  // namespace
}  // namespace gloo_bypass::test
