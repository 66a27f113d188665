#include "tests/collectives/every_kind.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives::test {
namespace {

constexpr std::size_t kCounts[] = {0, 1, 7, 1000, 5000};

}  // namespace

TimePoint soon() { return monotonicNow() + kPatience; }

::testing::AssertionResult runsRight(Executor& executor, const Case& c, int rank, Reduction reduction) {
  Buffers b = buffersFor(c, rank);
  b.call().reduction = reduction;
  if (std::string fault = collectives::faultOf(b.call(), rank, c.size); !fault.empty())
    return ::testing::AssertionFailure() << fault;
  const Status status = executor.run(b.call(), soon());
  if (!status.ok())
    return ::testing::AssertionFailure() << describe(c, reduction, rank) << ": " << status.error().message;
  const std::string fault = collectives::faultOf(c, rank, reduction, b);
  return fault.empty() ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << fault;
}

::testing::AssertionResult averagesLargeHalves(Executor& executor, const Case& c, int rank) {
  constexpr std::uint16_t kLarge = 0x78b0;  // 38,400 as float16: exact when divided and added up by 4, 5 and 6
  Buffers b = buffersFor(c, rank);
  for (std::size_t block = 0; block < b.call().inputs.size(); ++block) {
    const std::vector<std::uint16_t> values(b.call().inputs[block].count, kLarge);
    std::memcpy(const_cast<std::byte*>(b.call().inputs[block].data), values.data(), values.size() * sizeof(kLarge));
  }
  b.call().reduction = Reduction::kAverage;
  const Status status = executor.run(b.call(), soon());
  if (!status.ok()) return ::testing::AssertionFailure() << status.error().message;
  for (const std::vector<std::byte>& bytes : b.outputMemory()) {
    std::vector<std::uint16_t> values(bytes.size() / sizeof(kLarge));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(kLarge));
    for (const std::uint16_t value : values) {
      if (value == kLarge) continue;
      return ::testing::AssertionFailure() << describe(c, Reduction::kAverage, rank) << " gives " << std::hex << value;
    }
  }
  return ::testing::AssertionSuccess();
}

std::vector<Case> casesOf(Kind kind, int size) {
  std::vector<Case> cases;
  std::size_t i = 0;
  for (const std::size_t count : kCounts) {
    for (const bool ragged : {false, true}) {
      if (ragged && !hasBlocks(kind)) continue;
      const auto turn = static_cast<int>(i);
      cases.push_back({kind, kTypes[i % 4], count, size, turn % size, ragged, i % 2 == 1});
      ++i;
    }
  }
  return cases;
}

}  // namespace gloo_bypass::collectives::test
