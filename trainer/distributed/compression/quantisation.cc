// TernGrad and QSGD: rounding to few values by chance, so that the mean is the gradient.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include <ATen/ATen.h>

#include "trainer/distributed/compression/bit_stream.h"
#include "trainer/distributed/compression/codec.h"
#include "trainer/distributed/compression/lane_sum.h"

namespace gloo_bypass::trainer {
namespace {

// Elements whose codes are computed together; a multiple of what one drawn word is for.
constexpr std::size_t kBlock = 512;

// Not finite if one of the values is not.
template <typename T>
T largestMagnitude(std::span<const T> values) {
  T largest = 0;
  std::size_t infinite = 0;
  for (const T value : values) {
    largest = std::max(largest, std::abs(value));
    infinite += std::isfinite(value) ? 0 : 1;
  }
  return infinite > 0 ? std::numeric_limits<T>::infinity() : largest;
}

template <typename T>
T euclideanNorm(std::span<const T> values) {
  return std::sqrt(laneSum<T>(values, [](T value) { return value * value; }));
}

// For each group of elements a scale; then a code an element: level + levels, where level is -levels ... levels and
// stands for scale x level / levels. TernGrad is the case of one level and one group.
class LevelCodec final : public Codec {
 public:
  enum class Scale { kLargest, kEuclidean };
  // `group`: a multiple of kBlock; 0: the whole tensor.
  LevelCodec(int64_t levels, std::size_t group, Scale scale)
      : levels_(static_cast<int32_t>(levels)),
        group_(group),
        scale_(scale),
        width_(static_cast<unsigned>(std::bit_width(static_cast<uint64_t>(2 * levels)))) {}

  int64_t codeBytes(int64_t count, int64_t valueBytes) const override {
    return static_cast<int64_t>(groups(static_cast<std::size_t>(count))) * valueBytes + bytesOfBits(count * width_);
  }

  void encode(const at::Tensor& values, std::span<std::byte> code, const DrawPlace& place) const override {
    AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "levels", [&] {
      const std::span<const scalar_t> all(values.data_ptr<scalar_t>(), static_cast<std::size_t>(values.numel()));
      const std::size_t size = groupOf(all.size());
      BitWriter codes(code.subspan(groups(all.size()) * sizeof(scalar_t)));
      ShortDraws draws(place);
      for (std::size_t begin = 0, group = 0; begin < all.size(); begin += size, ++group) {
        const auto part = all.subspan(begin, std::min(size, all.size() - begin));
        const scalar_t scale = scale_ == Scale::kLargest ? largestMagnitude(part) : euclideanNorm(part);
        std::memcpy(&code[group * sizeof scale], &scale, sizeof scale);
        put(part, scale, draws, codes);
      }
      codes.finish();
    });
  }

  void addDecoded(std::span<const std::byte> code, double factor, const at::Tensor& sum) const override {
    AT_DISPATCH_FLOATING_TYPES(sum.scalar_type(), "levels", [&] {
      const std::span<scalar_t> out(sum.data_ptr<scalar_t>(), static_cast<std::size_t>(sum.numel()));
      const std::size_t size = groupOf(out.size());
      const auto codes = code.subspan(groups(out.size()) * sizeof(scalar_t));
      for (std::size_t begin = 0, group = 0; begin < out.size(); begin += size, ++group) {
        scalar_t scale;
        std::memcpy(&scale, &code[group * sizeof scale], sizeof scale);
        const scalar_t step = static_cast<scalar_t>(factor) * scale / static_cast<scalar_t>(levels_);
        const std::size_t end = begin + std::min(size, out.size() - begin);
        for (std::size_t i = begin; i < end; ++i) {
          out[i] += step * static_cast<scalar_t>(static_cast<int32_t>(codeAt(codes, i, width_)) - levels_);
        }
      }
    });
  }

 private:
  std::size_t groupOf(std::size_t count) const { return group_ == 0 ? std::max<std::size_t>(count, 1) : group_; }
  std::size_t groups(std::size_t count) const { return (count + groupOf(count) - 1) / groupOf(count); }

  // The level below |value| / scale x levels, or by chance the one above. If the scale is not finite, or next to zero,
  // the codes are zero, which decode to no number or to zero.
  template <typename T>
  void put(std::span<const T> part, T scale, ShortDraws& draws, BitWriter& codes) const {
    const T steps = static_cast<T>(levels_) / scale;  // infinite for zeros, and next to them
    const bool isNumber = scale > 0 && std::isfinite(scale) && std::isfinite(steps);
    std::array<uint16_t, kBlock> drawn;
    std::array<int32_t, kBlock> level;
    for (std::size_t begin = 0; begin < part.size(); begin += kBlock) {
      const auto block = part.subspan(begin, std::min(kBlock, part.size() - begin));
      draws.next(drawn);
      if (isNumber) {
        for (std::size_t i = 0; i < block.size(); ++i) {
          const T chance = (static_cast<T>(drawn[i]) + T{0.5}) / T{65'536};
          const auto above = std::min(static_cast<int32_t>(std::abs(block[i]) * steps + chance), levels_);
          level[i] = block[i] < 0 ? -above : above;
        }
      } else {
        level.fill(0);
      }
      for (std::size_t i = 0; i < block.size(); ++i) codes.put(static_cast<uint32_t>(levels_ + level[i]), width_);
    }
  }

  const int32_t levels_;
  const std::size_t group_;
  const Scale scale_;
  const unsigned width_;  // bits a code
};

constexpr std::size_t kQsgdBucket = kBlock;

}  // namespace

std::unique_ptr<Codec> makeTernGradCodec() { return std::make_unique<LevelCodec>(1, 0, LevelCodec::Scale::kLargest); }

std::unique_ptr<Codec> makeQsgdCodec(int64_t levels) {
  return std::make_unique<LevelCodec>(levels, kQsgdBucket, LevelCodec::Scale::kEuclidean);
}

}  // namespace gloo_bypass::trainer
