#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Half.h>

#include "trainer/distributed/compression/codec.h"
#include "trainer/distributed/compression/kept_count.h"
#include "transport/base/flat_map.h"

namespace gloo_bypass::trainer {
namespace {

// What elements are ordered by: NaN comes before all numbers.
template <typename T>
T magnitudeOf(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::infinity() : std::abs(value);
}

// Elements of at least a magnitude, in the order of the tensor.
template <typename T>
struct Candidates {
  std::vector<uint32_t> indices;
  std::vector<T> magnitudes;

  void collect(std::span<const T> values, T least) {
    indices.clear();
    magnitudes.clear();
    // Most blocks have none.
    constexpr std::size_t kBlock = 16;
    for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
      const auto block = values.subspan(begin, std::min(kBlock, values.size() - begin));
      unsigned found = 0;
      for (const T value : block) found |= static_cast<unsigned>(!(std::abs(value) < least));
      if (found == 0) continue;
      for (std::size_t i = 0; i < block.size(); ++i) {
        if (std::abs(block[i]) < least) continue;
        indices.push_back(static_cast<uint32_t>(begin + i));
        magnitudes.push_back(magnitudeOf(block[i]));
      }
    }
  }
};

// The `kept` elements of the largest magnitudes, in the order of the tensor. A sample says which magnitude somewhat
// more elements reach than are kept (Lin et al., Deep Gradient Compression, 2018, section 4.1.3); the choice among
// those is exact.
template <typename T>
std::vector<uint32_t> largest(std::span<const T> values, std::size_t kept) {
  constexpr std::size_t kSample = 16'384;
  const std::size_t stride = std::max<std::size_t>(values.size() / kSample, 1);
  std::vector<T> sample;
  for (std::size_t begin = 0; begin + stride <= values.size(); begin += stride) {
    sample.push_back(magnitudeOf(values[begin + mixBits(begin + 1) % stride]));  // columns of a matrix are not alike
  }
  const double expected = static_cast<double>(kept) / static_cast<double>(stride);
  auto rank = static_cast<std::size_t>(expected + 4 * std::sqrt(expected) + 8);
  Candidates<T> candidates;
  for (;; rank *= 4) {
    T least = 0;
    if (rank < sample.size()) {
      const auto at = sample.begin() + static_cast<std::ptrdiff_t>(rank);
      std::nth_element(sample.begin(), at, sample.end(), std::greater<>());
      least = *at;
    }
    candidates.collect(values, least);
    if (candidates.indices.size() >= kept) break;
  }
  // The smallest that is kept; of those equal to it as many as there is room for.
  std::vector<T> ordered = candidates.magnitudes;
  const auto last = ordered.begin() + static_cast<std::ptrdiff_t>(kept - 1);
  std::nth_element(ordered.begin(), last, ordered.end(), std::greater<>());
  const T smallest = *last;
  auto equals =
      kept - static_cast<std::size_t>(std::count_if(ordered.begin(), last, [=](T m) { return m > smallest; }));
  std::vector<uint32_t> chosen;
  chosen.reserve(kept);
  for (std::size_t i = 0; i < candidates.indices.size(); ++i) {
    const T magnitude = candidates.magnitudes[i];
    if (magnitude < smallest || (magnitude == smallest && equals == 0)) continue;
    if (magnitude == smallest) --equals;
    chosen.push_back(candidates.indices[i]);
  }
  return chosen;
}

template <typename T>
c10::Half halfOf(T value) {
  constexpr auto kLargest = static_cast<T>(65'504);
  return std::isfinite(value) ? static_cast<float>(std::clamp(value, -kLargest, kLargest)) : static_cast<float>(value);
}

// k indices of 32 bits, then k values: an element costs 8 bytes in fp32, 12 in fp64, 6 with values in fp16.
class TopKCodec final : public Codec {
 public:
  TopKCodec(double ratio, bool halves) : ratio_(ratio), halves_(halves) {}

  int64_t codeBytes(int64_t count, int64_t valueBytes) const override {
    return keptCount(count, ratio_) * (kIndexBytes + (halves_ ? kHalfBytes : valueBytes));
  }

  void encode(const at::Tensor& values, std::span<std::byte> code, const DrawPlace&) const override {
    AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "top-k", [&] {
      const std::span<const scalar_t> all(values.data_ptr<scalar_t>(), static_cast<std::size_t>(values.numel()));
      const auto chosen = largest(all, static_cast<std::size_t>(keptCount(values.numel(), ratio_)));
      std::memcpy(code.data(), chosen.data(), chosen.size() * kIndexBytes);
      std::byte* to = code.data() + chosen.size() * kIndexBytes;
      for (const uint32_t index : chosen) {
        to = halves_ ? put(halfOf(all[index]), to) : put(all[index], to);
      }
    });
  }

  void addDecoded(std::span<const std::byte> code, double factor, const at::Tensor& sum) const override {
    AT_DISPATCH_FLOATING_TYPES(sum.scalar_type(), "top-k", [&] {
      if (halves_) {
        add<scalar_t, c10::Half>(code, static_cast<scalar_t>(factor), sum);
      } else {
        add<scalar_t, scalar_t>(code, static_cast<scalar_t>(factor), sum);
      }
    });
  }

 private:
  static constexpr int64_t kIndexBytes = sizeof(uint32_t), kHalfBytes = sizeof(c10::Half);

  template <typename Value>
  static std::byte* put(Value value, std::byte* to) {
    std::memcpy(to, &value, sizeof value);
    return to + sizeof value;
  }

  template <typename T, typename Value>
  void add(std::span<const std::byte> code, T factor, const at::Tensor& sum) const {
    const int64_t count = sum.numel(), kept = keptCount(count, ratio_);
    const std::byte* values = code.data() + kept * kIndexBytes;
    T* out = sum.data_ptr<T>();
    for (int64_t i = 0; i < kept; ++i) {
      uint32_t index;
      Value value;
      std::memcpy(&index, code.data() + i * kIndexBytes, sizeof index);
      std::memcpy(&value, values + i * static_cast<int64_t>(sizeof value), sizeof value);
      if (index < static_cast<uint64_t>(count)) out[index] += factor * static_cast<T>(value);
    }
  }

  const double ratio_;
  const bool halves_;
};

}  // namespace

std::unique_ptr<Codec> makeTopKCodec(double ratio, bool halves) { return std::make_unique<TopKCodec>(ratio, halves); }

}  // namespace gloo_bypass::trainer
