// Sums that are made while a message arrives: the bits of reduce(), whatever the runs and their order.
#include "collectives/network/arriving_reduction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "collectives/reduce.h"

namespace gloo_bypass::collectives {
namespace {

using Bytes = std::vector<std::byte>;

Bytes randomBytes(std::size_t count, std::mt19937_64& random) {
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

void consume(const BytesConsumer& consumer, const Bytes& message, std::size_t begin, std::size_t end) {
  consumer.consume(consumer.context, begin, std::span(message).subspan(begin, end - begin));
}

// Cuts the message at random bytes, and passes the runs in random order.
void arriveAtRandom(const BytesConsumer& consumer, const Bytes& message, std::mt19937_64& random) {
  std::vector<std::size_t> cuts = {0, message.size()};
  for (std::size_t i = random() % 40; i > 0; --i) cuts.push_back(random() % (message.size() + 1));
  std::sort(cuts.begin(), cuts.end());
  std::vector<std::size_t> order(cuts.size() - 1);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  for (const std::size_t i : order) consume(consumer, message, cuts[i], cuts[i + 1]);
}

TEST(ArrivingReduction, RandomRunsInRandomOrder_GiveTheBitsOfReduce) {
  constexpr int kRanks = 2;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    for (int r = 0; r < kReductions; ++r) {
      for (int t = 0; t < kElementTypes; ++t) {
        const auto reduction = static_cast<Reduction>(r);
        const auto type = static_cast<ElementType>(t);
        if (!isDefined(reduction, type)) continue;
        const std::size_t count = random() % 700, bytes = count * sizeOf(type);
        const Bytes own = randomBytes(bytes, random), arriving = randomBytes(bytes, random);
        const bool ownFirst = random() % 2 == 0;
        const std::byte* const inputs[] = {ownFirst ? own.data() : arriving.data(),
                                           ownFirst ? arriving.data() : own.data()};
        Bytes expected(bytes);
        reduce(reduction, type, expected.data(), inputs, count, kRanks);

        const bool inPlace = random() % 2 == 0;
        Bytes kept = own, separate(bytes);
        Bytes& result = inPlace ? kept : separate;
        ArrivingReduction reducing;
        const BytesConsumer consumer = reducing.begin({.reduction = reduction,
                                                       .type = type,
                                                       .ranks = kRanks,
                                                       .own = kept.data(),
                                                       .ownFirst = ownFirst,
                                                       .result = result.data()});
        arriveAtRandom(consumer, arriving, random);
        ASSERT_EQ(result, expected) << nameOf(reduction) << " of " << nameOf(type);
      }
    }
  }
}

// As an adapter that writes by itself does.
TEST(ArrivingReduction, WholeMessageWhereTheResultBelongs_IsReducedInPlace) {
  std::mt19937_64 random(7);
  constexpr std::size_t kCount = 1000;
  const Bytes own = randomBytes(kCount * 4, random), arriving = randomBytes(kCount * 4, random);
  const std::byte* const inputs[] = {own.data(), arriving.data()};
  Bytes expected(own.size()), landed = arriving;
  reduce(Reduction::kSum, ElementType::kInt32, expected.data(), inputs, kCount, 1);
  ArrivingReduction reducing;
  const BytesConsumer consumer =
      reducing.begin({.type = ElementType::kInt32, .own = own.data(), .ownFirst = true, .result = landed.data()});
  consume(consumer, landed, 0, landed.size());
  EXPECT_EQ(landed, expected);
}

// A hostile peer's: values are spoiled, and nothing else.
TEST(ArrivingReduction, BytesTwiceOrMissing_LeaveTheNextMessageRight) {
  std::mt19937_64 random(9);
  constexpr std::size_t kCount = 64;
  const Bytes own = randomBytes(kCount * 8, random), arriving = randomBytes(kCount * 8, random);
  Bytes result(own.size()), expected(own.size());
  const std::byte* const inputs[] = {own.data(), arriving.data()};
  reduce(Reduction::kSum, ElementType::kInt64, expected.data(), inputs, kCount, 1);
  ArrivingReduction reducing;
  const ArrivingReduction::Sum sum{
      .type = ElementType::kInt64, .own = own.data(), .ownFirst = true, .result = result.data()};
  BytesConsumer consumer = reducing.begin(sum);
  for (int i = 0; i < 3; ++i) consume(consumer, arriving, 3, 5);
  for (std::size_t element = 0; element < kCount; ++element) consume(consumer, arriving, element * 8, element * 8 + 3);
  consumer = reducing.begin(sum);
  arriveAtRandom(consumer, arriving, random);
  EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace gloo_bypass::collectives
