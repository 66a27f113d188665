#include "trainer/distributed/compression/gathered.h"

#include <ATen/ATen.h>

namespace gloo_bypass::trainer {
namespace {

std::span<std::byte> bytesOf(const at::Tensor& message) {
  return {static_cast<std::byte*>(message.data_ptr()), message.nbytes()};
}

}  // namespace

void GatheredCodes::reduce(std::span<const GradientPart> parts, int64_t step, Wire& wire) {
  std::vector<int64_t> lengths;  // of each tensor's code
  int64_t total = 0;
  for (const GradientPart& part : parts) {
    lengths.push_back(codec_->codeBytes(part.gradient.numel(), workType(part.gradient) == at::kDouble ? 8 : 4));
    total += lengths.back();
  }
  auto message = at::empty({total}, at::kByte);
  auto rest = bytesOf(message);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& [parameter, gradient] = parts[i];
    const auto code = rest.first(static_cast<std::size_t>(lengths[i]));
    rest = rest.subspan(code.size());
    const auto values = feedback_.owed(parameter, gradient.reshape({-1}));
    codec_->encode(values, code, {.seed = seed_, .step = step, .rank = wire.rank(), .parameter = parameter});
    if (feedback_.enabled()) codec_->addDecoded(code, -1, values);
  }
  const auto messages = wire.gather(message);
  wire.finished();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto length = static_cast<std::size_t>(lengths[i]);
    const InPlace mean(parts[i].gradient);
    mean.values().zero_();
    for (const auto& other : messages) {
      codec_->addDecoded(bytesOf(other).subspan(begin, length), 1.0 / wire.worldSize(), mean.values());
    }
    begin += length;
  }
}

}  // namespace gloo_bypass::trainer
