#include "collectives/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "collectives/reduce_kernels.h"
#include "tests/collectives/reduce_reference.h"

namespace gloo_bypass::collectives {
namespace {

using Bytes = std::vector<std::byte>;

// Random bits, numbers of similar size, and the values where types have their edges.
std::uint64_t drawn(ElementType type, std::mt19937_64& random) {
  constexpr std::uint64_t kHalves[] = {0,      0x8000, 1,      0x8001, 0x3ff,  0x400,  0x3c00,
                                       0xbc00, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xfe12};
  constexpr std::uint64_t kBfloats[] = {0,      0x8000, 1,      0x8001, 0x7f,   0x80,   0x3f80,
                                        0xbf80, 0x7f7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffd2};
  constexpr std::uint64_t kFloats[] = {0,          0x80000000, 1,          0x807fffff, 0x800000,
                                       0x3f800000, 0xbf800001, 0x7f7fffff, 0x7f800000, 0xff800000,
                                       0x7fc00000, 0x7f800001, 0xffc12345};
  constexpr std::uint64_t kDoubles[] = {0,
                                        1ull << 63,
                                        1,
                                        1ull << 52,
                                        0x3ff0000000000000,
                                        0xbff0000000000001,
                                        0x7fefffffffffffff,
                                        0x7ff0000000000000,
                                        0xfff0000000000000,
                                        0x7ff8000000000000,
                                        0x7ff0000000000001,
                                        0xfff8000000012345};
  constexpr std::uint64_t kIntegers[] = {0,
                                         1,
                                         ~0ull,
                                         0x8080808080808080,
                                         0x8000800080008000,
                                         0x8000000080000000,
                                         1ull << 63,
                                         0x7fffffffffffffff,
                                         0x7fff7fff7fff7fff,
                                         0x7fffffff7fffffff};
  const auto oneOf = [&](std::span<const std::uint64_t> values) { return values[random() % values.size()]; };
  const std::uint64_t bits = random();
  const auto near = static_cast<float>(static_cast<double>(random() % 2000000) / 1e6 - 1);
  const auto choice = random() % 16;
  switch (type) {
    case ElementType::kFloat16:
      return choice < 2 ? oneOf(kHalves) : choice < 9 ? encodedFloat16(near) : bits;
    case ElementType::kBfloat16:
      return choice < 2 ? oneOf(kBfloats) : choice < 9 ? encodedBfloat16(near) : bits;
    case ElementType::kFloat32:
      return choice < 2 ? oneOf(kFloats) : choice < 9 ? std::bit_cast<std::uint32_t>(near) : bits;
    case ElementType::kFloat64:
      return choice < 2 ? oneOf(kDoubles) : choice < 9 ? std::bit_cast<std::uint64_t>(near * 1.1) : bits;
    case ElementType::kBool:
      return choice < 8 ? 0 : choice < 12 ? 1 : bits;
    default:
      return choice < 4 ? oneOf(kIntegers) : bits;
  }
}

Bytes drawnBytes(ElementType type, std::size_t count, std::mt19937_64& random) {
  const std::size_t size = sizeOf(type);
  Bytes bytes(count * size);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t element = drawn(type, random);
    std::memcpy(bytes.data() + i * size, &element, size);  // little-endian
  }
  return bytes;
}

Bytes referenceOf(Reduction reduction, ElementType type, std::span<const Bytes> inputs, int ranks) {
  const std::size_t size = sizeOf(type);
  Bytes result(inputs[0].size());
  std::vector<std::uint64_t> elements(inputs.size());
  for (std::size_t at = 0; at < result.size(); at += size) {
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      elements[k] = 0;
      std::memcpy(&elements[k], inputs[k].data() + at, size);
    }
    const std::uint64_t element = referenceOf(reduction, type, elements, ranks);
    std::memcpy(result.data() + at, &element, size);
  }
  return result;
}

std::vector<const std::byte*> pointersTo(std::span<const Bytes> inputs) {
  std::vector<const std::byte*> pointers;
  for (const Bytes& input : inputs) pointers.push_back(input.data());
  return pointers;
}

// Compares, and names the first element that differs.
testing::AssertionResult areEqual(ElementType type, std::span<const std::byte> got, std::span<const std::byte> wanted) {
  if (std::memcmp(got.data(), wanted.data(), wanted.size()) == 0) return testing::AssertionSuccess();
  const std::size_t size = sizeOf(type);
  std::size_t at = 0;
  while (std::memcmp(got.data() + at, wanted.data() + at, size) == 0) at += size;
  std::uint64_t is = 0, should = 0;
  std::memcpy(&is, got.data() + at, size);
  std::memcpy(&should, wanted.data() + at, size);
  return testing::AssertionFailure() << "element " << at / size << " is 0x" << std::hex << is << ", not 0x" << should;
}

struct Defined {
  Reduction reduction;
  ElementType type;
};
std::vector<Defined> everyDefined() {
  std::vector<Defined> every;
  for (int reduction = 0; reduction < kReductions; ++reduction) {
    for (int type = 0; type < kElementTypes; ++type) {
      const Defined one{static_cast<Reduction>(reduction), static_cast<ElementType>(type)};
      if (isDefined(one.reduction, one.type)) every.push_back(one);
    }
  }
  return every;
}

// Each test runs every set of instructions of this processor.
class Reduce : public testing::TestWithParam<Defined> {
 protected:
  ReduceKernel kernelOf(const ReduceKernels& set) const {
    return set.kernels[static_cast<std::size_t>(reduction_)][static_cast<std::size_t>(type_)];
  }
  std::vector<Bytes> drawnInputs(std::size_t inputs, std::size_t count) {
    std::vector<Bytes> drawn;
    for (std::size_t k = 0; k < inputs; ++k) drawn.push_back(drawnBytes(type_, count, random_));
    return drawn;
  }

  const Reduction reduction_ = GetParam().reduction;
  const ElementType type_ = GetParam().type;
  const unsigned seed_ = std::random_device{}();
  const testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
  std::mt19937_64 random_{seed_};
};

TEST_P(Reduce, OneToNineInputs_EqualTheReference) {
  for (std::size_t inputs = 1; inputs <= 9; ++inputs) {
    const std::vector<Bytes> drawn = drawnInputs(inputs, inputs == 2 ? 20'011 : 1'003);
    const auto ranks = static_cast<int>(inputs);
    const Bytes wanted = referenceOf(reduction_, type_, drawn, ranks);
    const auto pointers = pointersTo(drawn);
    for (const ReduceKernels* set : runnableReduceKernels()) {
      Bytes output(wanted.size());
      kernelOf (*set)(output.data(), pointers.data(), inputs, output.size() / sizeOf(type_), ranks);
      EXPECT_TRUE(areEqual(type_, output, wanted)) << set->instructionSet << ", inputs: " << inputs;
    }
  }
}

TEST_P(Reduce, AnyCountAndAlignment_GivesTheSameBitsAndWritesNothingElse) {
  constexpr std::size_t kMost = 130, kAlignments = 64, kSpare = 64;
  constexpr std::byte kUntouched{0xa5};
  const std::size_t size = sizeOf(type_);
  for (const std::size_t inputs : {1u, 2u, 3u}) {
    const std::vector<Bytes> drawn = drawnInputs(inputs, kMost);
    const Bytes wanted = referenceOf(reduction_, type_, drawn, 3);
    std::vector<Bytes> shifted(inputs, Bytes(kMost * size + kAlignments));
    Bytes output(kAlignments + kMost * size + kSpare);
    for (std::size_t alignment = 0; alignment < kAlignments; ++alignment) {
      std::vector<const std::byte*> pointers;
      for (std::size_t k = 0; k < inputs; ++k) {
        std::byte* const start = shifted[k].data() + (alignment * (2 * k + 1) + 7 * k) % kAlignments;
        std::memcpy(start, drawn[k].data(), drawn[k].size());
        pointers.push_back(start);
      }
      for (const ReduceKernels* set : runnableReduceKernels()) {
        for (std::size_t count = 0; count <= kMost; ++count) {
          const std::size_t end = alignment + count * size;
          std::memset(output.data(), static_cast<int>(kUntouched), output.size());
          kernelOf (*set)(output.data() + alignment, pointers.data(), inputs, count, 3);
          ASSERT_EQ(std::memcmp(output.data() + alignment, wanted.data(), count * size), 0)
              << set->instructionSet << ", inputs: " << inputs << ", alignment " << alignment << ", count " << count;
          ASSERT_TRUE(output[end] == kUntouched &&
                      std::memcmp(&output[end], &output[end + 1], output.size() - end - 1) == 0)
              << set->instructionSet << " writes after the end, count " << count;
          ASSERT_TRUE(alignment == 0 || output[alignment - 1] == kUntouched);
        }
      }
    }
  }
}

TEST_P(Reduce, OutputIsAnInput_OfAnyPlace_EqualsTheReference) {
  for (std::size_t inputs = 1; inputs <= 9; ++inputs) {
    const std::vector<Bytes> drawn = drawnInputs(inputs, 517);
    const Bytes wanted = referenceOf(reduction_, type_, drawn, 4);
    for (const ReduceKernels* set : runnableReduceKernels()) {
      for (std::size_t place = 0; place < inputs; ++place) {
        std::vector<Bytes> copies = drawn;
        kernelOf (*set)(copies[place].data(), pointersTo(copies).data(), inputs, 517, 4);
        EXPECT_TRUE(areEqual(type_, copies[place], wanted)) << set->instructionSet << ", " << place << " of " << inputs;
        for (std::size_t k = 0; k < inputs; ++k) EXPECT_TRUE(k == place || copies[k] == drawn[k]) << k;
      }
    }
  }
}

TEST_P(Reduce, StepByStep_RoundsAtEachStepAndDividesAtTheEnd) {
  const std::vector<Bytes> drawn = drawnInputs(4, 333);
  const Reduction step = reduction_ == Reduction::kAverage ? Reduction::kSum : reduction_;
  Bytes accumulator = drawn[0], wanted = drawn[0];
  for (std::size_t k = 1; k < drawn.size(); ++k) {
    const std::byte* const inputs[] = {accumulator.data(), drawn[k].data()};
    reduce(step, type_, accumulator.data(), inputs, 333, 1);
    wanted = referenceOf(step, type_, std::vector{wanted, drawn[k]}, 1);
    ASSERT_TRUE(areEqual(type_, accumulator, wanted)) << "step " << k;
  }
  finish(reduction_, type_, accumulator.data(), 333, 4);
  if (reduction_ == Reduction::kAverage) wanted = referenceOf(reduction_, type_, std::span(&wanted, 1), 4);
  EXPECT_TRUE(areEqual(type_, accumulator, wanted));
}

TEST_P(Reduce, Called_EqualsTheReference) {
  const std::vector<Bytes> drawn = drawnInputs(5, 1'000);
  Bytes output(drawn[0].size());
  reduce(reduction_, type_, output.data(), pointersTo(drawn), 1'000, 5);
  EXPECT_TRUE(areEqual(type_, output, referenceOf(reduction_, type_, drawn, 5)));
}

INSTANTIATE_TEST_SUITE_P(Every, Reduce, testing::ValuesIn(everyDefined()), [](const auto& info) {
  return std::string(nameOf(info.param.reduction)) + "_" + nameOf(info.param.type);
});

// All values of a 16-bit type, in order.
Bytes everyHalf() {
  std::vector<std::uint16_t> values(65'536);
  std::iota(values.begin(), values.end(), std::uint16_t{0});
  Bytes bytes(2 * values.size());
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
std::uint16_t halfAt(const Bytes& bytes, std::size_t index) {
  std::uint16_t value = 0;
  std::memcpy(&value, bytes.data() + 2 * index, 2);
  return value;
}

class ReduceHalves : public testing::TestWithParam<ElementType> {
 protected:
  std::uint16_t encoded(float value) const {
    return GetParam() == ElementType::kFloat16 ? encodedFloat16(value) : encodedBfloat16(value);
  }
  float decoded(std::uint16_t bits) const {
    return GetParam() == ElementType::kFloat16 ? decodedFloat16(bits) : decodedBfloat16(bits);
  }
  void expectEveryValueComesBack(Reduction reduction) const {
    const Bytes every = everyHalf();
    const std::byte* const inputs[] = {every.data(), every.data()};
    for (const ReduceKernels* set : runnableReduceKernels()) {
      Bytes output(every.size());
      const auto kernel = set->kernels[static_cast<std::size_t>(reduction)][static_cast<std::size_t>(GetParam())];
      kernel(output.data(), inputs, 2, 65'536, 2);
      for (std::size_t bits = 0; bits < 65'536; ++bits) {
        const bool number = !std::isnan(decoded(static_cast<std::uint16_t>(bits)));
        ASSERT_EQ(halfAt(output, bits), number ? bits : encoded(std::nanf(""))) << set->instructionSet;
      }
    }
  }
};

TEST_P(ReduceHalves, EveryValue_ComesBack) {
  expectEveryValueComesBack(Reduction::kMax);
  expectEveryValueComesBack(Reduction::kMin);
}

TEST_P(ReduceHalves, EveryValueTimesSome_RoundsOnceToNearestEven) {
  const Bytes every = everyHalf();
  for (const float factor : {1.0f, 1.5f, 0.75f, 1.0078125f, 0.01f, 3e-5f, -1000.0f}) {
    const std::uint16_t bits = encoded(factor);
    Bytes factors(every.size());
    for (std::size_t i = 0; i < factors.size(); i += 2) std::memcpy(&factors[i], &bits, 2);
    const std::byte* const inputs[] = {every.data(), factors.data(), factors.data()};
    for (const ReduceKernels* set : runnableReduceKernels()) {
      Bytes output(every.size());
      set->kernels[static_cast<std::size_t>(Reduction::kProduct)][static_cast<std::size_t>(GetParam())](
          output.data(), inputs, 3, 65'536, 3);
      for (std::size_t i = 0; i < 65'536; ++i) {
        const float product = decoded(static_cast<std::uint16_t>(i)) * decoded(bits) * decoded(bits);
        ASSERT_EQ(halfAt(output, i), encoded(product)) << set->instructionSet << ", " << i << " times " << factor;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Both, ReduceHalves, testing::Values(ElementType::kFloat16, ElementType::kBfloat16),
                         [](const auto& info) { return nameOf(info.param); });

#ifdef __SSE2__
class ReduceFloat16 : public ReduceHalves {};
// Those of bf16 are subnormal floats, which the processor flushes as it is told to.
TEST_P(ReduceFloat16, EveryValueWhileTheProcessorFlushesSubnormals_ComesBack) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // flush to zero, denormals are zero
  expectEveryValueComesBack(Reduction::kMax);
  expectEveryValueComesBack(Reduction::kAverage);
  _mm_setcsr(before);
}
INSTANTIATE_TEST_SUITE_P(Only, ReduceFloat16, testing::Values(ElementType::kFloat16));

// As after torch.set_flush_denormal(True) in some of the threads that add.
TEST(ReduceSubnormals, WhileTheProcessorFlushesThem_Stay) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const std::vector<float> first(19, 3 * tiny), second(19, 5 * tiny);
  std::vector<float> sum(19), average(19);
  const std::byte* const inputs[] = {reinterpret_cast<const std::byte*>(first.data()),
                                     reinterpret_cast<const std::byte*>(second.data())};
  const unsigned before = _mm_getcsr(), flushing = before | 0x8040;
  _mm_setcsr(flushing);
  reduce(Reduction::kSum, ElementType::kFloat32, reinterpret_cast<std::byte*>(sum.data()), inputs, 19, 2);
  average = sum;
  finish(Reduction::kAverage, ElementType::kFloat32, reinterpret_cast<std::byte*>(average.data()), 19, 2);
  EXPECT_EQ(_mm_getcsr() & 0x8040U, flushing & 0x8040U);
  _mm_setcsr(before);
  EXPECT_EQ(sum, std::vector<float>(19, 8 * tiny));
  EXPECT_EQ(average, std::vector<float>(19, 4 * tiny));
}
#endif

TEST(ReduceKernels_Sets, ReductionIsNotDefined_HaveNoKernel) {
  for (const ReduceKernels* set : runnableReduceKernels()) {
    for (int reduction = 0; reduction < kReductions; ++reduction) {
      for (int type = 0; type < kElementTypes; ++type) {
        EXPECT_EQ(set->kernels[reduction][type] != nullptr,
                  isDefined(static_cast<Reduction>(reduction), static_cast<ElementType>(type)))
            << set->instructionSet << ", reduction " << reduction << ", type " << type;
      }
    }
  }
}

TEST(ReduceKernels_Sets, OfAnyProcessor_BeginWithTheBaseline) {
  const auto sets = runnableReduceKernels();
  ASSERT_FALSE(sets.empty());
  EXPECT_STREQ(sets[0]->instructionSet, "baseline");
  std::string names;
  for (const ReduceKernels* set : sets) names += std::string(" ") + set->instructionSet;
  std::printf("sets compared:%s\n", names.c_str());
}

}  // namespace
}  // namespace gloo_bypass::collectives
