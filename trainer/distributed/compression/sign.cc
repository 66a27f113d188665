#include <cmath>
#include <cstring>

#include <ATen/ATen.h>

#include "trainer/distributed/compression/bit_stream.h"
#include "trainer/distributed/compression/codec.h"

namespace gloo_bypass::trainer {
namespace {

// The scale, then a bit an element: 1 is below zero.
class SignCodec final : public Codec {
 public:
  int64_t codeBytes(int64_t count, int64_t valueBytes) const override { return valueBytes + bytesOfBits(count); }

  void encode(const at::Tensor& values, std::span<std::byte> code, const DrawPlace&) const override {
    const auto scale = values.abs().mean();
    std::memcpy(code.data(), scale.data_ptr(), scale.nbytes());
    BitWriter bits(code.subspan(scale.nbytes()));
    AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "sign", [&] {
      const auto* value = values.data_ptr<scalar_t>();
      for (int64_t i = 0; i < values.numel(); ++i) bits.put(value[i] < 0 ? 1 : 0, 1);
    });
    bits.finish();
  }

  void addDecoded(std::span<const std::byte> code, at::Tensor& sum) const override {
    AT_DISPATCH_FLOATING_TYPES(sum.scalar_type(), "sign", [&] {
      scalar_t scale;
      std::memcpy(&scale, code.data(), sizeof scale);
      BitReader bits(code.subspan(sizeof scale));
      auto* out = sum.data_ptr<scalar_t>();
      for (int64_t i = 0; i < sum.numel(); ++i) out[i] += bits.take(1) != 0 ? -scale : scale;
    });
  }
};

}  // namespace

std::unique_ptr<Codec> makeSignCodec() { return std::make_unique<SignCodec>(); }

}  // namespace gloo_bypass::trainer
