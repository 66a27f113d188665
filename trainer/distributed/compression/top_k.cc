#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>

#include "trainer/distributed/compression/codec.h"
#include "trainer/distributed/compression/kept_count.h"

namespace gloo_bypass::trainer {
namespace {

// k indices of 32 bits, then k values: an element costs 8 bytes in fp32, 12 in fp64.
class TopKCodec final : public Codec {
 public:
  explicit TopKCodec(double ratio) : ratio_(ratio) {}

  int64_t codeBytes(int64_t count, int64_t valueBytes) const override {
    return keptCount(count, ratio_) * (static_cast<int64_t>(sizeof(uint32_t)) + valueBytes);
  }

  void encode(const at::Tensor& values, std::span<std::byte> code, const DrawPlace&) const override {
    const int64_t kept = keptCount(values.numel(), ratio_);
    const auto indices = std::get<1>(at::topk(values.abs(), kept, 0, /*largest=*/true, /*sorted=*/false));
    const auto* index = indices.data_ptr<int64_t>();
    for (int64_t i = 0; i < kept; ++i) {
      const auto narrow = static_cast<uint32_t>(index[i]);
      std::memcpy(&code[static_cast<std::size_t>(i) * sizeof narrow], &narrow, sizeof narrow);
    }
    const auto chosen = values.index_select(0, indices);
    std::memcpy(&code[static_cast<std::size_t>(kept) * sizeof(uint32_t)], chosen.data_ptr(), chosen.nbytes());
  }

  void addDecoded(std::span<const std::byte> code, at::Tensor& sum) const override {
    AT_DISPATCH_FLOATING_TYPES(sum.scalar_type(), "top-k", [&] { add<scalar_t>(code, sum); });
  }

 private:
  template <typename T>
  void add(std::span<const std::byte> code, at::Tensor& sum) const {
    const int64_t count = sum.numel(), kept = keptCount(count, ratio_);
    const std::byte* values = code.data() + static_cast<std::size_t>(kept) * sizeof(uint32_t);
    T* out = sum.data_ptr<T>();
    for (int64_t i = 0; i < kept; ++i) {
      uint32_t index;
      T value;
      std::memcpy(&index, code.data() + static_cast<std::size_t>(i) * sizeof index, sizeof index);
      std::memcpy(&value, values + static_cast<std::size_t>(i) * sizeof value, sizeof value);
      if (index < static_cast<uint64_t>(count)) out[index] += value;
    }
  }

  const double ratio_;
};

}  // namespace

std::unique_ptr<Codec> makeTopKCodec(double ratio) { return std::make_unique<TopKCodec>(ratio); }

}  // namespace gloo_bypass::trainer
