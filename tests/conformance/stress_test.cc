// Random traffic among a few ranks: a seed, which a failure prints, determines slots, sizes, orders and sources. Set
// GLOO_BYPASS_TEST_SEED to repeat one.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include <gloo/transport/unbound_buffer.h>

#include "tests/conformance/backend.h"

namespace gloo_bypass::test {
namespace {

constexpr int kRanks = 4;
constexpr int kRounds = 12;
constexpr int kMessagesARound = 60;
constexpr std::uint64_t kSharedSlots = 3;        // several pairs use them at once
constexpr std::uint64_t kAnySlot = 1ull << 40;   // and above: received from any rank, a slot a round
constexpr std::uint64_t kDeadSlot = 1ull << 41;  // nothing is ever sent on it

struct Message {
  int from = 0, to = 0;
  std::uint64_t slot = 0;
  bool any = false;
  std::size_t bytes = 0;
  unsigned seed = 0;  // of its content
};

std::uint8_t contentOf(const Message& m, std::size_t i) { return static_cast<std::uint8_t>(m.seed + i * 13); }

std::size_t drawSize(std::mt19937& random) {
  switch (random() % 6) {
    case 0:
      return 0;
    case 1:
      return 4;
    case 2:
      return random() % 2000;
    case 3:
      return 1400 + random() % 200;
    case 4:
      return 30000 + random() % 10000;
    default:
      return random() % 300000;
  }
}

// The same on every rank.
std::vector<Message> drawRound(std::mt19937& random, int round) {
  std::vector<Message> messages;
  std::map<int, std::size_t> anyBytes;  // one size for each receiver: which sender comes first is unknown
  for (int i = 0; i < kMessagesARound; ++i) {
    Message m;
    m.from = static_cast<int>(random() % kRanks);
    m.to = static_cast<int>((static_cast<unsigned>(m.from) + 1 + random() % (kRanks - 1)) % kRanks);
    m.any = random() % 4 == 0;
    m.slot = m.any ? kAnySlot + static_cast<std::uint64_t>(round) : random() % kSharedSlots;
    m.bytes = drawSize(random);
    if (m.any) m.bytes = anyBytes.emplace(m.to, m.bytes).first->second;
    m.seed = static_cast<unsigned>(random());
    messages.push_back(m);
  }
  return messages;
}

struct Pending {
  Message message;
  bool sending = false;
  std::vector<std::uint8_t> memory;
  std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;
};

// The operations that `rank` posts in this round: in any order, but in the round's order within one direction, peer and
// slot.
std::vector<std::unique_ptr<Pending>> planOf(int rank, const std::vector<Message>& round, std::mt19937& random) {
  using Stream = std::tuple<bool, int, std::uint64_t>;
  std::map<Stream, std::vector<const Message*>> streams;
  std::vector<Stream> order;
  for (const Message& m : round) {
    if (m.from == rank) order.emplace_back(true, m.to, m.slot);
    if (m.to == rank) order.emplace_back(false, m.any ? -1 : m.from, m.slot);
    if (m.from == rank || m.to == rank) streams[order.back()].push_back(&m);
  }
  std::shuffle(order.begin(), order.end(), random);
  std::map<Stream, std::size_t> taken;
  std::vector<std::unique_ptr<Pending>> plan;
  for (const Stream& stream : order) {
    plan.push_back(std::make_unique<Pending>());
    plan.back()->message = *streams[stream][taken[stream]++];
    plan.back()->sending = std::get<0>(stream);
  }
  return plan;
}

void post(const ContextPtr& context, Pending& p) {
  const Message& m = p.message;
  p.memory.resize(m.bytes);
  p.buffer = context->createUnboundBuffer(p.memory.data(), m.bytes);
  if (p.sending) {
    for (std::size_t i = 0; i < m.bytes; ++i) p.memory[i] = contentOf(m, i);
    p.buffer->send(m.to, m.slot);
  } else if (m.any) {
    p.buffer->recv(std::vector<int>{0, 1, 2, 3}, m.slot, 0, m.bytes);
  } else {
    p.buffer->recv(m.from, m.slot);
  }
}

void check(const Pending& p, int source, std::map<int, std::vector<const Message*>>& anyFrom) {
  if (p.sending) return;
  const Message* expected = &p.message;
  if (p.message.any) {
    auto& left = anyFrom[source];
    ASSERT_FALSE(left.empty());
    // Two receives may be filled in one order and waited for in another.
    const auto same = std::find_if(left.begin(), left.end(), [&](const Message* m) {
      for (std::size_t i = 0; i < m->bytes; ++i) {
        if (p.memory[i] != contentOf(*m, i)) return false;
      }
      return true;
    });
    ASSERT_NE(left.end(), same) << "nothing that rank " << source << " sent";
    left.erase(same);
    return;
  }
  ASSERT_EQ(expected->from, source);
  for (std::size_t i = 0; i < expected->bytes; ++i) {
    ASSERT_EQ(contentOf(*expected, i), p.memory[i]) << "byte " << i << " of " << expected->bytes;
  }
}

void runRank(const ContextPtr& context, unsigned seed, bool mayCancel) {
  std::mt19937 shared(seed), own(seed + 1 + static_cast<unsigned>(context->rank));
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<Message> messages = drawRound(shared, round);
    auto plan = planOf(context->rank, messages, own);
    std::map<int, std::vector<const Message*>> anyFrom;
    for (const Message& m : messages) {
      if (m.to == context->rank && m.any) anyFrom[m.from].push_back(&m);
    }
    for (auto& pending : plan) {
      post(context, *pending);
      if (mayCancel && own() % 8 == 0) {
        std::vector<char> memory(100);
        auto dead = context->createUnboundBuffer(memory.data(), memory.size());
        dead->recv(own() % 2 == 0 ? std::vector<int>{0, 1, 2, 3} : std::vector<int>{(context->rank + 1) % kRanks},
                   kDeadSlot);
      }
    }
    std::shuffle(plan.begin(), plan.end(), own);
    for (auto& pending : plan) {
      int peer = -1;
      pending->sending ? pending->buffer->waitSend(&peer) : pending->buffer->waitRecv(&peer);
      check(*pending, peer, anyFrom);
    }
  }
}

class Stress : public Conformance {};

TEST_P(Stress, RandomTraffic_EveryMessageArrivesUnharmed) {
  const char* fixed = std::getenv("GLOO_BYPASS_TEST_SEED");
  const unsigned seed =
      fixed != nullptr ? static_cast<unsigned>(std::strtoul(fixed, nullptr, 10)) : std::random_device{}();
  SCOPED_TRACE("GLOO_BYPASS_TEST_SEED=" + std::to_string(seed));
  RecordProperty("seed", std::to_string(seed));
  run(kRanks, [&](const ContextPtr& context) { runRank(context, seed, /*mayCancel=*/!GetParam().reference); });
  if (HasFailure()) std::fprintf(stderr, "GLOO_BYPASS_TEST_SEED=%u\n", seed);
}

GLOO_BYPASS_CONFORMANCE(Stress);

}  // namespace
}  // namespace gloo_bypass::test
