#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include <ATen/ATen.h>

#include "trainer/distributed/compression/bit_stream.h"
#include "trainer/distributed/compression/codec.h"
#include "trainer/distributed/compression/lane_sum.h"

namespace gloo_bypass::trainer {
namespace {

constexpr std::size_t kByteBits = 8;

template <typename T>
T meanMagnitude(std::span<const T> values) {
  const double sum = laneSum<double>(values, [](T value) { return std::abs(value); });
  return static_cast<T>(sum / static_cast<double>(values.size()));
}

// The scale, then a bit an element: 1 is below zero.
class SignCodec final : public Codec {
 public:
  int64_t codeBytes(int64_t count, int64_t valueBytes) const override { return valueBytes + bytesOfBits(count); }

  void encode(const at::Tensor& values, std::span<std::byte> code, const DrawPlace&) const override {
    AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "sign", [&] {
      const std::span<const scalar_t> all(values.data_ptr<scalar_t>(), static_cast<std::size_t>(values.numel()));
      const scalar_t scale = meanMagnitude(all);
      std::memcpy(code.data(), &scale, sizeof scale);
      std::byte* bits = code.data() + sizeof scale;
      for (std::size_t begin = 0; begin < all.size(); begin += kByteBits) {
        const auto part = all.subspan(begin, std::min(kByteBits, all.size() - begin));
        unsigned byte = 0;
        for (std::size_t i = 0; i < part.size(); ++i) byte |= static_cast<unsigned>(part[i] < 0) << i;
        *bits++ = static_cast<std::byte>(byte);
      }
    });
  }

  void addDecoded(std::span<const std::byte> code, double factor, const at::Tensor& sum) const override {
    AT_DISPATCH_FLOATING_TYPES(sum.scalar_type(), "sign", [&] {
      scalar_t scale;
      std::memcpy(&scale, code.data(), sizeof scale);
      scale *= static_cast<scalar_t>(factor);
      const std::byte* bits = code.data() + sizeof scale;
      const std::span<scalar_t> out(sum.data_ptr<scalar_t>(), static_cast<std::size_t>(sum.numel()));
      std::size_t begin = 0;
      for (; begin + kByteBits <= out.size(); begin += kByteBits) {
        const auto byte = std::to_integer<unsigned>(*bits++);
        for (std::size_t i = 0; i < kByteBits; ++i) out[begin + i] += kSigns[byte][i] * scale;
      }
      for (std::size_t i = 0; begin + i < out.size(); ++i) {
        out[begin + i] += kSigns[std::to_integer<unsigned>(*bits)][i] * scale;
      }
    });
  }

 private:
  // Of the elements of a byte.
  static constexpr auto kSigns = [] {
    std::array<std::array<float, kByteBits>, 256> signs{};
    for (std::size_t byte = 0; byte < signs.size(); ++byte) {
      for (std::size_t i = 0; i < kByteBits; ++i) signs[byte][i] = (byte >> i & 1) != 0 ? -1.0F : 1.0F;
    }
    return signs;
  }();
};

}  // namespace

std::unique_ptr<Codec> makeSignCodec() { return std::make_unique<SignCodec>(); }

}  // namespace gloo_bypass::trainer
