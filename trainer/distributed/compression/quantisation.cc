// TernGrad and QSGD: rounding to few values by chance, so that the mean is the gradient.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <ATen/ATen.h>

#include "trainer/distributed/compression/bit_stream.h"
#include "trainer/distributed/compression/codec.h"

namespace gloo_bypass::trainer {
namespace {

// For each group of elements a scale; then a code an element: level + levels, where level is -levels ... levels and
// stands for scale x level / levels. TernGrad is the case of one level and one group.
class LevelCodec final : public Codec {
 public:
  enum class Scale { kLargest, kEuclidean };
  // `group` 0: the whole tensor.
  LevelCodec(int64_t levels, int64_t group, Scale scale)
      : levels_(levels),
        group_(group),
        scale_(scale),
        width_(static_cast<unsigned>(std::bit_width(static_cast<uint64_t>(2 * levels)))) {}

  int64_t codeBytes(int64_t count, int64_t valueBytes) const override {
    return groups(count) * valueBytes + bytesOfBits(count * width_);
  }

  void encode(const at::Tensor& values, std::span<std::byte> code, const DrawPlace& place) const override {
    const int64_t count = values.numel(), groupSize = groupOf(count);
    const auto chance = at::rand({count}, generatorAt(place), values.options());
    AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "levels", [&] {
      const auto* value = values.data_ptr<scalar_t>();
      const auto* draw = chance.data_ptr<scalar_t>();
      BitWriter codes(code.subspan(static_cast<std::size_t>(groups(count)) * sizeof(scalar_t)));
      for (int64_t begin = 0, group = 0; begin < count; begin += groupSize, ++group) {
        const int64_t end = std::min(begin + groupSize, count);
        const auto part = values.slice(0, begin, end);
        const auto scale = (scale_ == Scale::kLargest ? part.abs().max() : part.norm()).template item<scalar_t>();
        std::memcpy(&code[static_cast<std::size_t>(group) * sizeof scale], &scale, sizeof scale);
        for (int64_t i = begin; i < end; ++i) codes.put(codeOf(value[i], scale, draw[i]), width_);
      }
      codes.finish();
    });
  }

  void addDecoded(std::span<const std::byte> code, at::Tensor& sum) const override {
    const int64_t count = sum.numel(), groupSize = groupOf(count);
    AT_DISPATCH_FLOATING_TYPES(sum.scalar_type(), "levels", [&] {
      auto* out = sum.data_ptr<scalar_t>();
      BitReader codes(code.subspan(static_cast<std::size_t>(groups(count)) * sizeof(scalar_t)));
      for (int64_t begin = 0, group = 0; begin < count; begin += groupSize, ++group) {
        scalar_t scale;
        std::memcpy(&scale, &code[static_cast<std::size_t>(group) * sizeof scale], sizeof scale);
        for (int64_t i = begin; i < std::min(begin + groupSize, count); ++i) {
          const auto level = static_cast<int64_t>(codes.take(width_)) - levels_;
          out[i] += scale * static_cast<scalar_t>(level) / static_cast<scalar_t>(levels_);
        }
      }
    });
  }

 private:
  int64_t groupOf(int64_t count) const { return group_ == 0 ? count : group_; }
  int64_t groups(int64_t count) const { return (count + groupOf(count) - 1) / groupOf(count); }

  // The level below |value| / scale x levels, or by chance the one above. Of a scale that is no number the code says
  // nothing, and decodes to no number.
  template <typename T>
  uint32_t codeOf(T value, T scale, T draw) const {
    if (!(scale > 0) || !std::isfinite(scale)) return static_cast<uint32_t>(levels_);
    const T exact = std::abs(value) / scale * static_cast<T>(levels_);
    const T below = std::floor(exact);
    const auto level = std::min(static_cast<int64_t>(below) + (draw < exact - below ? 1 : 0), levels_);
    return static_cast<uint32_t>(levels_ + (value < 0 ? -level : level));
  }

  const int64_t levels_, group_;
  const Scale scale_;
  const unsigned width_;  // bits a code
};

constexpr int64_t kQsgdBucket = 512;

}  // namespace

std::unique_ptr<Codec> makeTernGradCodec() { return std::make_unique<LevelCodec>(1, 0, LevelCodec::Scale::kLargest); }

std::unique_ptr<Codec> makeQsgdCodec(int64_t levels) {
  return std::make_unique<LevelCodec>(levels, kQsgdBucket, LevelCodec::Scale::kEuclidean);
}

}  // namespace gloo_bypass::trainer
