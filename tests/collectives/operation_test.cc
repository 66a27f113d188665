#include "collectives/operation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace gloo_bypass::collectives {
namespace {

using ::testing::HasSubstr;

TEST(Description_Words, EveryField_ComesBack) {
  for (const bool inPieces : {false, true}) {
    const Description description{Kind::kReduce, ElementType::kBfloat16, Reduction::kMax, 4'000'000'000u, 1ull << 60,
                                  inPieces};
    EXPECT_EQ(descriptionOf(wordsOf(description)), description);
  }
}

TEST(Description_Words, NoRankWritesThem_AreRefused) {
  for (int byte = 0; byte < 4; ++byte) EXPECT_FALSE(descriptionOf({0xffull << (8 * byte), 0})) << byte;
  EXPECT_FALSE(descriptionOf({static_cast<std::uint64_t>(kKinds), 0}));
  EXPECT_FALSE(descriptionOf({static_cast<std::uint64_t>(kElementTypes) << 8, 0}));
  EXPECT_FALSE(descriptionOf({static_cast<std::uint64_t>(kReductions) << 16, 0}));
}

TEST(Description_Text, NamesWhatMatters) {
  EXPECT_EQ(textOf({Kind::kAllReduce, ElementType::kFloat32, Reduction::kSum, 0, 1024}),
            "all-reduce of 1024 float32, sum");
  EXPECT_EQ(textOf({Kind::kAllReduce, ElementType::kFloat32, Reduction::kSum, 0, 1024, true}),
            "all-reduce of 1024 float32, sum, in pieces");
  EXPECT_EQ(textOf({Kind::kBroadcast, ElementType::kInt64, {}, 3, 10}), "broadcast of 10 int64 from rank 3");
  EXPECT_EQ(textOf({.kind = Kind::kGather, .type = ElementType::kInt8, .root = 1}), "gather of int8 to rank 1");
  EXPECT_EQ(textOf({}), "barrier");
}

TEST(Reduction_IsDefined, BitsOfIntegers_AverageOfFloats) {
  EXPECT_TRUE(isDefined(Reduction::kBitXor, ElementType::kBool));
  EXPECT_FALSE(isDefined(Reduction::kBitAnd, ElementType::kFloat16));
  EXPECT_TRUE(isDefined(Reduction::kAverage, ElementType::kBfloat16));
  EXPECT_FALSE(isDefined(Reduction::kAverage, ElementType::kInt64));
}

struct Buffers {
  std::array<std::byte, 64> memory{};
  std::vector<ConstBlock> inputs;
  std::vector<Block> outputs;
  Call call(Kind kind, std::vector<std::size_t> inputCounts, std::vector<std::size_t> outputCounts, int root = 0) {
    inputs.clear();
    outputs.clear();
    for (std::size_t count : inputCounts) inputs.push_back({memory.data(), count});
    for (std::size_t count : outputCounts) outputs.push_back({memory.data() + memory.size() / 2, count});
    return {.kind = kind, .type = ElementType::kFloat32, .root = root, .inputs = inputs, .outputs = outputs};
  }
};

TEST(Call_Fault, RightShapes_HaveNone) {
  Buffers b;
  EXPECT_EQ(faultOf(b.call(Kind::kAllReduce, {3}, {3}), 1, 2), "");
  EXPECT_EQ(faultOf(b.call(Kind::kReduce, {3}, {}), 1, 2), "");
  EXPECT_EQ(faultOf(b.call(Kind::kReduce, {3}, {3}, 1), 1, 2), "");
  EXPECT_EQ(faultOf(b.call(Kind::kReduceScatter, {1, 2}, {2}), 1, 2), "");
  EXPECT_EQ(faultOf(b.call(Kind::kAllGather, {2}, {1, 2}), 1, 2), "");
  EXPECT_EQ(faultOf(b.call(Kind::kBroadcast, {}, {2}), 1, 2), "");
  EXPECT_EQ(faultOf(b.call(Kind::kBroadcast, {2}, {}, 1), 1, 2), "");
  EXPECT_EQ(faultOf(b.call(Kind::kScatter, {1, 2}, {2}, 1), 1, 2), "");
  EXPECT_EQ(faultOf(b.call(Kind::kAllToAll, {1, 2}, {3, 2}), 1, 2), "");
  EXPECT_EQ(faultOf(b.call(Kind::kBarrier, {}, {}), 1, 2), "");
}

TEST(Call_Fault, WrongShapes_AreNamed) {
  Buffers b;
  EXPECT_THAT(faultOf(b.call(Kind::kAllReduce, {3}, {4}), 0, 2), HasSubstr("the input has 3 elements, the output 4"));
  EXPECT_THAT(faultOf(b.call(Kind::kAllGather, {3}, {3}), 0, 2), HasSubstr("1 outputs, this rank needs 2"));
  EXPECT_THAT(faultOf(b.call(Kind::kReduceScatter, {3}, {3}), 0, 2), HasSubstr("1 inputs, this rank needs 2"));
  EXPECT_THAT(faultOf(b.call(Kind::kBroadcast, {3}, {3}, 2), 0, 2), HasSubstr("there is no rank 2 in a group of 2"));
  Call inPlace = b.call(Kind::kAllToAll, {1, 1}, {1, 1});
  b.inputs[1].data = b.outputs[1].data;
  EXPECT_EQ(faultOf(inPlace, 1, 2), "");
  b.inputs[0].data = b.outputs[0].data;
  EXPECT_THAT(faultOf(inPlace, 1, 2), HasSubstr("the block for rank 0 and the one from it are the same memory"));
  Call call = b.call(Kind::kAllReduce, {3}, {3});
  call.reduction = Reduction::kBitOr;
  EXPECT_THAT(faultOf(call, 0, 2), HasSubstr("or is not defined for float32"));
}

TEST(Call_Describe, CountsThatMayDiffer_AreZero) {
  Buffers b;
  EXPECT_EQ(describe(b.call(Kind::kAllReduce, {3}, {3})).count, 3u);
  EXPECT_EQ(describe(b.call(Kind::kReduceScatter, {1, 2}, {2})).count, 3u);
  EXPECT_EQ(describe(b.call(Kind::kScatter, {}, {2}, 1)).count, 2u);
  EXPECT_EQ(describe(b.call(Kind::kAllToAll, {1, 2}, {3, 2})).count, 0u);
  Call uneven = b.call(Kind::kAllGather, {2}, {1, 2});
  uneven.uneven = true;
  EXPECT_EQ(describe(uneven).count, 0u);
}

}  // namespace
}  // namespace gloo_bypass::collectives
