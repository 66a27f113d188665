#include "collectives/network/data_layout.h"

#include <gtest/gtest.h>

#include <vector>

namespace gloo_bypass::collectives {
namespace {

constexpr std::size_t kPartBytes = 4096;

// Every element is in one part of one slice, in order.
TEST(DataLayout_Vector, AnyCountAndParts_CoversItOnce) {
  for (const std::size_t count : {0, 1, 63, 64, 65, 1000, 4096, 100'001}) {
    for (const int parts : {1, 2, 3, 8, 17}) {
      std::vector<std::byte> memory(4 * count);
      const ConstBlock input{memory.data(), count};
      const Block output{memory.data(), count};
      const Call call{
          .kind = Kind::kAllReduce, .type = ElementType::kFloat32, .inputs = {&input, 1}, .outputs = {&output, 1}};
      const DataLayout layout(call, 0, 2, parts, kPartBytes);
      std::size_t next = 0;
      for (std::size_t slice = 0; slice < layout.slices(); ++slice) {
        std::size_t inSlice = 0;
        for (int part = 0; part < parts; ++part) {
          const Region region = layout.region(slice, {part, part + 1});
          if (region.count > 0) {
            EXPECT_EQ(region.input, memory.data() + 4 * next);
            EXPECT_EQ(region.output, memory.data() + 4 * next);
          }
          EXPECT_LE(4 * region.count, kPartBytes);
          next += region.count;
          inSlice += region.count;
        }
        EXPECT_EQ(layout.region(slice, {0, parts}).count, inSlice);
        EXPECT_TRUE(slice == 0 || inSlice > 0);
      }
      EXPECT_EQ(next, count);
    }
  }
}

TEST(DataLayout_AllToAll, Blocks_BelongToPairsOfRanks) {
  std::vector<std::byte> memory(100);
  const std::vector<ConstBlock> inputs = {{memory.data(), 1}, {memory.data() + 1, 2}, {memory.data() + 3, 3}};
  const std::vector<Block> outputs = {{memory.data() + 50, 4}, {memory.data() + 54, 2}, {memory.data() + 56, 5}};
  const Call call{.kind = Kind::kAllToAll, .type = ElementType::kUint8, .inputs = inputs, .outputs = outputs};
  const DataLayout layout(call, 1, 3, 9, kPartBytes);
  EXPECT_EQ(layout.region(0, {3 + 2, 3 + 3}).input, memory.data() + 3);    // from 1 to 2
  EXPECT_EQ(layout.region(0, {6 + 1, 6 + 2}).output, memory.data() + 56);  // from 2 to 1
  EXPECT_EQ(layout.blockBytes(6 + 1), 5u);
  EXPECT_EQ(layout.region(0, {4, 5}).input, memory.data() + 1);
  EXPECT_EQ(layout.region(0, {4, 5}).output, memory.data() + 54);
  EXPECT_EQ(layout.region(0, {0, 1}).count, 0u);
}

}  // namespace
}  // namespace gloo_bypass::collectives
