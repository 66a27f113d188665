// Put and get on another rank's memory, without help from its program: the same over every back-end. Gloo's own TCP
// transport, the reference elsewhere, has none; the tests expect what Gloo's ibverbs transport guarantees.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/common/error.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include "tests/conformance/on_demand_backends.h"
#include "transport/compatibility/gloo/remote_key.h"
#include "transport/gloo/context.h"

namespace gloo_bypass::test {
namespace {

using gloo_version::RemoteKeyBuffer;
using Key = std::unique_ptr<gloo_version::RemoteKey>;

constexpr std::uint64_t kSlot = 7;
constexpr char kUntouched = 127;  // sample<char> is below 97

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Memory and the buffer over it, of one rank.
struct Memory {
  Memory(::gloo::transport::Context& context, std::size_t bytes, char fill = kUntouched)
      : bytes(bytes, fill), owner(context.createUnboundBuffer(this->bytes.data(), bytes)) {}
  RemoteKeyBuffer* operator->() const { return &dynamic_cast<RemoteKeyBuffer&>(*owner); }
  void fillWith(int round) {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = sample<char>(0, i, round);
  }

  std::vector<char> bytes;
  std::unique_ptr<::gloo::transport::UnboundBuffer> owner;
};

// The key as it comes to another rank: as text.
Key keyFor(::gloo::transport::Context& asker, const Memory& target) {
  return dynamic_cast<gloo_version::RemoteKeyContext&>(asker).deserializeRemoteKey(target->getRemoteKey()->serialize());
}

// Gloo's TCP transport has no remote keys.
template <typename AnyBackend>
std::vector<AnyBackend> withRemoteKeys(std::vector<AnyBackend> all) {
  std::erase_if(all, [](const AnyBackend& backend) { return backend.reference; });
  return all;
}

class RemoteKeys : public Conformance {
 protected:
  ::gloo::transport::Context& connect(int size, Milliseconds timeout = kPatience) {
    mesh_ = connectedMesh(GetParam(), size, timeout);
    return *mesh_.contexts[0];
  }
  ::gloo::transport::Context& context(std::size_t rank) { return *mesh_.contexts[rank]; }
  // `size` bytes of the source, from `from` on, are in the target at `at`, and nothing else of it was touched.
  static void expectOnly(const Memory& source, std::size_t from, const Memory& target, std::size_t at,
                         std::size_t size) {
    for (std::size_t i = 0; i < target.bytes.size(); ++i) {
      const bool inside = i >= at && i < at + size;
      ASSERT_EQ(inside ? source.bytes[i - at + from] : kUntouched, target.bytes[i]) << size << " at " << i;
    }
  }
  // The pair between ranks 0 and 1 carries an ordinary message.
  void expectPairWorks() {
    int in = 77, out = 0;
    auto send = context(0).createUnboundBuffer(&in, sizeof(in));
    auto receive = context(1).createUnboundBuffer(&out, sizeof(out));
    send->send(1, kSlot + 1000);
    receive->recv(0, kSlot + 1000);
    EXPECT_TRUE(receive->waitRecv());
    EXPECT_TRUE(send->waitSend());
    EXPECT_EQ(77, out);
  }

  Mesh mesh_;
};

TEST_P(RemoteKeys, Put_AnySize_IsInPlaceWhenWaitSendReturns) {
  auto& here = connect(2);
  for (const std::size_t size : {0u, 1u, 4096u, 4097u, 100000u, 8u << 20}) {
    constexpr std::size_t kBefore = 100, kAfter = 57, kOffset = 3;
    Memory target(context(1), kBefore + size + kAfter), source(here, size + kOffset);
    source.fillWith(static_cast<int>(size % 10));
    const Key key = keyFor(here, target);
    source->put(*key, kSlot, kOffset, kBefore, size);
    int rank = -1;
    ASSERT_TRUE(source->waitSend(&rank));
    EXPECT_EQ(1, rank);
    expectOnly(source, kOffset, target, kBefore, size);
  }
}

TEST_P(RemoteKeys, Get_AnySize_BringsTheBytes) {
  auto& here = connect(2);
  for (const std::size_t size : {0u, 1u, 4096u, 4097u, 100000u, 8u << 20}) {
    constexpr std::size_t kBefore = 11, kAfter = 5, kOffset = 64;
    Memory source(context(1), size + kOffset), target(here, kBefore + size + kAfter);
    source.fillWith(static_cast<int>(size % 10));
    const Key key = keyFor(here, source);
    target->get(*key, kSlot, kBefore, kOffset, size);
    int rank = -1;
    ASSERT_TRUE(target->waitSend(&rank));
    EXPECT_EQ(1, rank);
    expectOnly(source, kOffset, target, kBefore, size);
  }
}

TEST_P(RemoteKeys, Key_AsText_SaysWhoseAndHowLarge) {
  auto& here = connect(2);
  Memory target(context(1), 1234);
  const Key own = target->getRemoteKey(), again = target->getRemoteKey(), read = keyFor(here, target);
  EXPECT_EQ(own->serialize(), again->serialize());
  EXPECT_EQ(own->serialize(), read->serialize());
  EXPECT_EQ(1, read->rank);
  EXPECT_EQ(1234u, read->size);
  // Gloo's users hand it on as a C string, of less than a kilobyte.
  EXPECT_LT(own->serialize().size(), 200u);
  EXPECT_EQ(std::string::npos, own->serialize().find('\0'));
  Memory other(context(1), 1234);
  EXPECT_NE(own->serialize(), other->getRemoteKey()->serialize());
}

TEST_P(RemoteKeys, ManyAtOnce_BothWays_AllArrive) {
  connect(2);
  constexpr std::size_t kCount = 200;
  const auto sizeOf = [](std::size_t i) { return 1 + i * 97 % 9000; };
  inThreads(2, [&](int rank) {
    auto& here = context(static_cast<std::size_t>(rank));
    auto& there = context(static_cast<std::size_t>(1 - rank));
    constexpr std::size_t kEach = 9000;
    Memory source(here, kCount * kEach), target(there, kCount * kEach), back(here, kCount * kEach);
    source.fillWith(rank);
    const Key key = keyFor(here, target);
    for (std::size_t i = 0; i < kCount; ++i) {
      source->put(*key, kSlot, i * kEach, i * kEach, sizeOf(i));
      back->get(*key, kSlot, i * kEach, i * kEach, sizeOf(i));
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_TRUE(source->waitSend());
      ASSERT_TRUE(back->waitSend());
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      for (std::size_t j = 0; j < kEach; ++j) {
        const char expected = j < sizeOf(i) ? source.bytes[i * kEach + j] : kUntouched;
        ASSERT_EQ(expected, target.bytes[i * kEach + j]) << i << ", " << j;
        ASSERT_EQ(expected, back.bytes[i * kEach + j]) << i << ", " << j;
      }
    }
  });
}

TEST_P(RemoteKeys, SameBytes_TakeEffectInOrder) {
  auto& here = connect(2);
  constexpr std::size_t kLarge = 300000, kSmall = 500, kMiddle = 100;
  Memory target(context(1), kLarge, 'o');
  const Key key = keyFor(here, target);
  for (int round = 0; round < 5; ++round) {
    Memory large(here, kLarge, 'l'), small(here, kSmall, 's'), before(here, kLarge), between(here, kLarge),
        after(here, kLarge);
    before->get(*key, kSlot, 0, 0, kLarge);
    large->put(*key, kSlot, 0, 0, kLarge);
    between->get(*key, kSlot, 0, 0, kLarge);
    small->put(*key, kSlot, 0, kMiddle, kSmall);
    after->get(*key, kSlot, 0, 0, kLarge);
    for (const Memory* memory : {&after, &small, &between, &large, &before}) ASSERT_TRUE((*memory)->waitSend());
    std::vector<char> expected(kLarge, 'l');
    ASSERT_EQ(expected, between.bytes);
    std::fill_n(expected.begin() + kMiddle, kSmall, 's');
    ASSERT_EQ(expected, after.bytes);
    ASSERT_EQ(round == 0 ? std::vector<char>(kLarge, 'o') : expected, before.bytes);
  }
}

TEST_P(RemoteKeys, PutThenMessage_ReceiverFindsTheBytes) {
  connect(2);
  constexpr std::size_t kBytes = 20000;
  Memory target(context(1), kBytes);
  inThreads(2, [&](int rank) {
    auto& here = context(static_cast<std::size_t>(rank));
    int round = 0, echo = -1;
    auto notice = here.createUnboundBuffer(&round, sizeof(round));
    auto answer = here.createUnboundBuffer(&echo, sizeof(echo));
    Memory source(here, kBytes);
    const Key key = keyFor(here, target);
    for (round = 0; round < 20; ++round) {
      if (rank == 0) {
        source.fillWith(round);
        source->put(*key, kSlot, 0, 0, round % 2 == 0 ? kBytes : 100);
        ASSERT_TRUE(source->waitSend());
        notice->send(1, kSlot);
        answer->recv(1, kSlot);
        ASSERT_TRUE(notice->waitSend());
        ASSERT_TRUE(answer->waitRecv());
      } else {
        answer->recv(0, kSlot);
        ASSERT_TRUE(answer->waitRecv());
        for (std::size_t i = 0; i < (round % 2 == 0 ? kBytes : 100); ++i) {
          ASSERT_EQ(sample<char>(0, i, round), target.bytes[i]) << round << ", " << i;
        }
        notice->send(0, kSlot);
        ASSERT_TRUE(notice->waitSend());
      }
    }
  });
}

// A slot is no match for sends and receives of the same one.
TEST_P(RemoteKeys, SlotOfAMessage_IsNotMatched) {
  auto& here = connect(2);
  Memory target(context(1), 10, 'a'), source(here, 10, 'b'), received(context(1), 10), sent(here, 10, 'c');
  const Key key = keyFor(here, target);
  received->recv(0, kSlot, 0, 10);
  source->put(*key, kSlot, 0, 0, 10);
  ASSERT_TRUE(source->waitSend());
  sent->send(1, kSlot, 0, 10);
  ASSERT_TRUE(received->waitRecv());
  ASSERT_TRUE(sent->waitSend());
  EXPECT_EQ(std::vector<char>(10, 'c'), received.bytes);
  EXPECT_EQ(std::vector<char>(10, 'b'), target.bytes);
}

TEST_P(RemoteKeys, OutOfBounds_IsRefusedAtTheCall) {
  auto& here = connect(2);
  Memory target(context(1), 100), local(here, 50);
  const Key key = keyFor(here, target);
  constexpr std::size_t kHuge = 1000000000, kMost = SIZE_MAX;
  const std::vector<std::vector<std::size_t>> wrong = {{kHuge, 0, 1}, {0, kHuge, 1}, {0, 0, kHuge}, {51, 0, 0},
                                                       {0, 101, 0},   {1, 0, 50},    {0, 51, 50},   {1, 0, kMost},
                                                       {kMost, 0, 2}, {0, kMost, 2}, {0, 1, kMost}, {0, 0, kMost}};
  for (const auto& at : wrong) {
    EXPECT_THROW(local->put(*key, kSlot, at[0], at[1], at[2]), ::gloo::EnforceNotMet) << at[0] << " " << at[1];
    EXPECT_THROW(local->get(*key, kSlot, at[0], at[1], at[2]), ::gloo::EnforceNotMet) << at[0] << " " << at[1];
  }
  EXPECT_EQ(std::vector<char>(100, kUntouched), target.bytes);
  // To the last byte it is allowed, and no byte behind it too.
  local->put(*key, kSlot, 0, 50, 50);
  local->put(*key, kSlot, 50, 100, 0);
  EXPECT_TRUE(local->waitSend());
  EXPECT_TRUE(local->waitSend());
}

class ForeignKey final : public gloo_version::RemoteKey {
 public:
  ForeignKey() : RemoteKey(1, 100) {}
  std::string serialize() const override { return "foreign"; }
};

TEST_P(RemoteKeys, KeyThatIsNotOurs_IsRefusedAtTheCall) {
  auto& here = connect(2);
  Memory target(context(1), 100), local(here, 50);
  EXPECT_THROW(local->put(ForeignKey(), kSlot, 0, 0, 1), ::gloo::EnforceNotMet);
  EXPECT_THROW(local->get(ForeignKey(), kSlot, 0, 0, 1), ::gloo::EnforceNotMet);
  auto& reader = dynamic_cast<gloo_version::RemoteKeyContext&>(here);
  const std::string good = target->getRemoteKey()->serialize();
  for (const std::string& text : {std::string(), std::string("x"), good + "0", good.substr(1), good + ":",
                                  good.substr(0, good.size() - 1), std::string(5000, 'a'), "gloo-bypass:1:-1:5:" + good,
                                  std::string("gloo-bypass:1:99999999999999999999:1:2:3")}) {
    EXPECT_THROW((void)reader.deserializeRemoteKey(text), ::gloo::EnforceNotMet) << text;
  }
  // A rank that is not there.
  const Key key = reader.deserializeRemoteKey("gloo-bypass:1:2" + good.substr(std::string("gloo-bypass:1:1").size()));
  EXPECT_EQ(2, key->rank);
  EXPECT_THROW(local->put(*key, kSlot, 0, 0, 1), ::gloo::EnforceNotMet);
}

TEST_P(RemoteKeys, OwnRank_CopiesAtOnce) {
  auto& here = connect(2);
  Memory target(here, 100), source(here, 50, 'p'), back(here, 100);
  const Key key = keyFor(here, target);
  source->put(*key, kSlot, 10, 20, 30);
  int rank = -1;
  EXPECT_TRUE(source->waitSend(&rank));
  EXPECT_EQ(0, rank);
  std::vector<char> expected(100, kUntouched);
  std::fill_n(expected.begin() + 20, 30, 'p');
  EXPECT_EQ(expected, target.bytes);
  back->get(*key, kSlot, 0, 0, 100);
  EXPECT_TRUE(back->waitSend());
  EXPECT_EQ(expected, back.bytes);
  target.owner.reset();
  source->put(*key, kSlot, 0, 0, 50);
  EXPECT_TRUE(contains(ioExceptionOf([&] { source->waitSend(); }), "gone"));
  EXPECT_EQ(expected, target.bytes);
}

TEST_P(RemoteKeys, OwnRank_RefusesTwice_FirstReasonStays) {
  auto& here = connect(2);
  const Mesh other = connectedMesh(GetParam(), 2);
  Memory target(here, 50), source(here, 50, 'p'), elsewhere(*other.contexts[0], 50);
  const Key gone = keyFor(here, target), wrong = keyFor(here, elsewhere);
  target.owner.reset();
  source->put(*gone, kSlot, 0, 0, 50);
  source->put(*wrong, kSlot, 0, 0, 50);
  const std::string text = ioExceptionOf([&] { source->waitSend(); });
  EXPECT_TRUE(contains(text, "gone")) << text;
}

TEST_P(RemoteKeys, KeyOfAnotherContext_IsRefusedAndThePairGoesOn) {
  auto& here = connect(2);
  const Mesh other = connectedMesh(GetParam(), 2);
  Memory elsewhere(*other.contexts[1], 9000, 'e'), target(context(1), 9000, 't');
  const Key wrong = keyFor(here, elsewhere), right = keyFor(here, target);
  for (const std::size_t size : {0u, 10u, 9000u}) {
    Memory put(here, 9000, 'p'), get(here, 9000, 'g');
    put->put(*wrong, kSlot, 0, 0, size);
    get->get(*wrong, kSlot, 0, 0, size);
    for (Memory* memory : {&put, &get}) {
      const std::string text = ioExceptionOf([&] { (*memory)->waitSend(); });
      for (const char* part : {"Rank 0", "rank 1", "another context"}) EXPECT_TRUE(contains(text, part)) << text;
    }
    EXPECT_EQ(std::vector<char>(9000, 'g'), get.bytes);
  }
  EXPECT_EQ(std::vector<char>(9000, 'e'), elsewhere.bytes);
  Memory source(here, 9000, 's');
  source->put(*right, kSlot, 0, 0, 9000);
  EXPECT_TRUE(source->waitSend());
  EXPECT_EQ(source.bytes, target.bytes);
  expectPairWorks();
}

TEST_P(RemoteKeys, BufferGoneBefore_IsRefusedAndThePairGoesOn) {
  auto& here = connect(2);
  auto target = std::make_unique<Memory>(context(1), 9000);
  const Key key = keyFor(here, *target);
  target.reset();
  for (const std::size_t size : {0u, 10u, 9000u}) {
    Memory put(here, 9000), get(here, 9000);
    put->put(*key, kSlot, 0, 0, size);
    get->get(*key, kSlot, 0, 0, size);
    EXPECT_TRUE(contains(ioExceptionOf([&] { put->waitSend(); }), "gone"));
    EXPECT_TRUE(contains(ioExceptionOf([&] { get->waitSend(); }), "gone"));
  }
  expectPairWorks();
}

// Peers may write the buffer until its destructor has returned; after that its memory belongs to another owner.
TEST_P(RemoteKeys, BufferGoesMeanwhile_NothingIsTouchedAfterwards) {
  constexpr std::size_t kBytes = 1 << 20;
  for (int round = 0; round < 6; ++round) {
    auto& here = connect(2);
    auto target = std::make_unique<Memory>(context(1), kBytes);
    const Key key = keyFor(here, *target);
    std::vector<std::unique_ptr<Memory>> sources;
    for (int i = 0; i < 6; ++i) {
      sources.push_back(std::make_unique<Memory>(here, kBytes, static_cast<char>('a' + i)));
      if (i % 2 == round % 2) {
        (*sources.back())->put(*key, kSlot, 0, 0, i == 3 ? 100 : kBytes);
      } else {
        (*sources.back())->get(*key, kSlot, 0, 0, kBytes);
      }
    }
    std::thread away([&] { target->owner.reset(); });
    away.join();
    const std::vector<char> left = target->bytes;
    for (auto& source : sources) {
      try {
        (*source)->waitSend();
      } catch (const ::gloo::IoException& e) {
        EXPECT_TRUE(contains(e.what(), "rank 1")) << e.what();
      }
    }
    EXPECT_EQ(left, target->bytes);
  }
}

TEST_P(RemoteKeys, AskersBufferGoesMeanwhile_NothingIsTouchedAfterwards) {
  constexpr std::size_t kBytes = 1 << 20;
  connect(2);
  Memory target(context(1), kBytes);
  auto& here = context(0);
  const Key key = keyFor(here, target);
  for (int round = 0; round < 6; ++round) {
    Memory local(here, 2 * kBytes);  // gets into the one half, puts from the other: what is being written is not read
    try {
      for (int i = 0; i < 3; ++i) {
        local->get(*key, kSlot, 0, 0, i == 1 ? 10 : kBytes);
        local->put(*key, kSlot, kBytes, 0, i == 1 ? 10 : kBytes);
      }
    } catch (const ::gloo::IoException&) {
      break;  // a put of the round before was cut off half-way, and that was the pair's end
    }
    local.owner.reset();
    const std::vector<char> left = local.bytes;
    int out = 0, in = 1;
    auto send = context(1).createUnboundBuffer(&in, sizeof(in));
    auto receive = here.createUnboundBuffer(&out, sizeof(out));
    try {
      send->send(0, kSlot);
      receive->recv(1, kSlot);
      receive->waitRecv();
    } catch (const ::gloo::IoException&) {
    }
    EXPECT_EQ(left, local.bytes);
  }
}

TEST_P(RemoteKeys, PeerCloses_OperationsFailNamingIt) {
  auto& here = connect(3);
  Memory target(context(1), 100000), other(context(2), 100), local(here, 100000, 'x'), second(here, 100);
  const Key key = keyFor(here, target), otherKey = keyFor(here, other);
  local->put(*key, kSlot, 0, 0, 100000);
  EXPECT_TRUE(local->waitSend());
  context(1).getPair(0)->close();
  for (const bool put : {true, false}) {
    const std::string text = ioExceptionOf([&] {
      put ? local->put(*key, kSlot, 0, 0, 100000) : local->get(*key, kSlot, 0, 0, 100000);
      local->waitSend();
    });
    EXPECT_TRUE(contains(text, "rank 1")) << text;
  }
  second->put(*otherKey, kSlot, 0, 0, 100);
  EXPECT_TRUE(second->waitSend());
}

TEST_P(RemoteKeys, FourRanks_EachPutsIntoEach) {
  constexpr std::size_t kRanks = 4, kEach = 6000;
  connect(kRanks);
  std::vector<std::unique_ptr<Memory>> exposed;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    exposed.push_back(std::make_unique<Memory>(context(rank), kRanks * kEach));
  }
  inThreads(kRanks, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    Memory source(context(r), kEach, static_cast<char>(rank));
    for (std::size_t peer = 0; peer < kRanks; ++peer) {
      const Key key = keyFor(context(r), *exposed[peer]);
      source->put(*key, kSlot, 0, r * kEach, kEach);
    }
    for (std::size_t peer = 0; peer < kRanks; ++peer) ASSERT_TRUE(source->waitSend());
  });
  for (const auto& memory : exposed) {
    for (std::size_t i = 0; i < memory->bytes.size(); ++i)
      ASSERT_EQ(static_cast<char>(i / kEach), memory->bytes[i]) << i;
  }
}

TEST_P(RemoteKeys, AbortedWait_ReturnsFalseAndTheBufferGoesOn) {
  auto& here = connect(2);
  Memory target(context(1), 100000), local(here, 100000, 'x');
  const Key key = keyFor(here, target);
  local->abortWaitSend();
  EXPECT_FALSE(local->waitSend());
  local->put(*key, kSlot, 0, 0, 100000);
  EXPECT_TRUE(local->waitSend());
  EXPECT_EQ(local.bytes, target.bytes);
}

// Gloo's top-level context over a transport context that is there already.
class TopContext final : public ::gloo::Context {
 public:
  TopContext(std::shared_ptr<::gloo::transport::Device> device, std::shared_ptr<::gloo::transport::Context> context)
      : ::gloo::Context(context->rank, context->size) {
    setTimeout(kPatience);
    device_ = std::move(device);
    transportContext_ = std::move(context);
  }
};

// As a program of Gloo's does it, with keys exchanged by a collective.
TEST_P(RemoteKeys, KeysThroughAllgather_EachGetsFromEach) {
  constexpr std::size_t kRanks = 3, kBytes = 5000, kText = 256;
  connect(kRanks);
  inThreads(kRanks, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    auto top = std::make_shared<TopContext>(mesh_.devices[r], mesh_.contexts[r]);
    Memory exposed(context(r), kBytes, static_cast<char>('a' + rank)), local(context(r), kBytes);
    std::string text = exposed->getRemoteKey()->serialize();
    text.resize(kText);
    std::vector<char> texts(kText * kRanks);
    const auto gather = [&](std::uint32_t tag) {
      ::gloo::AllgatherOptions options(top);
      options.setInput(text.data(), kText);
      options.setOutput(texts.data(), texts.size());
      options.setTag(tag);
      ::gloo::allgather(options);
    };
    gather(0);
    for (std::size_t peer = 0; peer < kRanks; ++peer) {
      const std::string received(&texts[peer * kText]);
      auto& own = dynamic_cast<gloo_version::RemoteKeyContext&>(context(r));
      const Key key = gloo_version::kGlooHasRemoteKeys ? gloo_version::deserializeRemoteKey(*top, received)
                                                       : own.deserializeRemoteKey(received);
      local->get(*key, top->nextSlot(), 0, 0, kBytes);
      ASSERT_TRUE(local->waitSend());
      EXPECT_EQ(std::vector<char>(kBytes, static_cast<char>('a' + peer)), local.bytes);
    }
    gather(1);  // no rank leaves before all have their data
  });
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RemoteKeys);
INSTANTIATE_TEST_SUITE_P(Conformance, RemoteKeys, ::testing::ValuesIn(withRemoteKeys(backends())), nameOf);

class RemoteKeysOnDemand : public ::testing::TestWithParam<OnDemandBackend> {
 protected:
  std::shared_ptr<::gloo::transport::Context> join(int rank, int size, Milliseconds timeout = kPatience) {
    devices_.push_back(GetParam().makeDevice());
    auto context = devices_.back()->createContext(rank, size);
    context->setTimeout(timeout);
    if (!gloo_version::connectKeepingStore(*context, store_)) {
      EXPECT_TRUE(dynamic_cast<adapter::Context&>(*context).connectOnDemand(store_));
    }
    return context;
  }

  std::shared_ptr<::gloo::rendezvous::HashStore> store_ = std::make_shared<::gloo::rendezvous::HashStore>();
  std::vector<std::shared_ptr<::gloo::transport::Device>> devices_;
};

TEST_P(RemoteKeysOnDemand, FirstUseOfThePair_Connects) {
  for (const std::size_t size : {0u, 100u, 200000u}) {
    store_ = std::make_shared<::gloo::rendezvous::HashStore>();
    auto first = join(0, 3), second = join(1, 3), third = join(2, 3);
    Memory target(*second, size, 't'), put(*first, size, 'p'), get(*third, size);
    const Key forFirst = keyFor(*first, target), forThird = keyFor(*third, target);
    put->put(*forFirst, kSlot, 0, 0, size);
    int rank = -1;
    ASSERT_TRUE(put->waitSend(&rank));
    EXPECT_EQ(1, rank);
    EXPECT_EQ(put.bytes, target.bytes);
    get->get(*forThird, kSlot, 0, 0, size);
    ASSERT_TRUE(get->waitSend());
    EXPECT_EQ(put.bytes, get.bytes);
  }
}

TEST_P(RemoteKeysOnDemand, ManyBeforeThePairIsConnected_AllArrive) {
  constexpr std::size_t kCount = 150, kEach = 5000;
  auto first = join(0, 2), second = join(1, 2);
  Memory target(*second, kCount * kEach), source(*first, kCount * kEach);
  source.fillWith(3);
  const Key key = keyFor(*first, target);
  for (std::size_t i = 0; i < kCount; ++i) source->put(*key, kSlot, i * kEach, i * kEach, kEach);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_TRUE(source->waitSend());
  EXPECT_EQ(source.bytes, target.bytes);
}

TEST_P(RemoteKeysOnDemand, TargetNeverComes_FailsNamingIt) {
  auto first = join(0, 2, Milliseconds(200));
  Memory source(*first, 100);
  // A key of a rank that has ended.
  const Key key = dynamic_cast<gloo_version::RemoteKeyContext&>(*first).deserializeRemoteKey(
      "gloo-bypass:1:1:100:0123456789abcdef:0123456789abcdef");
  source->put(*key, kSlot, 0, 0, 100);
  const std::string text = ioExceptionOf([&] { source->waitSend(kPatience); });
  EXPECT_TRUE(contains(text, "rank 1")) << text;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RemoteKeysOnDemand);
INSTANTIATE_TEST_SUITE_P(Conformance, RemoteKeysOnDemand, ::testing::ValuesIn(withRemoteKeys(onDemandBackends())),
                         [](const auto& info) { return info.param.name; });

// Features that our transports have and Gloo's TCP transport lacks.
class RemoteKeySupport : public Conformance {};

TEST_P(RemoteKeySupport, UnboundBuffer_HasAKeyUnlessOverGloosTcp) {
  if (GetParam().reference && !gloo_version::kGlooHasRemoteKeys) GTEST_SKIP() << "this Gloo has no remote keys";
  auto context = GetParam().makeDevice()->createContext(0, 2);
  Memory memory(*context, 4);
  if (GetParam().reference) {
    EXPECT_THROW((void)memory->getRemoteKey(), std::runtime_error);
  } else {
    EXPECT_EQ(4u, memory->getRemoteKey()->size);
  }
}

GLOO_BYPASS_CONFORMANCE(RemoteKeySupport);

}  // namespace
}  // namespace gloo_bypass::test
