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
  auto message = at::zeros({total}, at::kByte);
  auto rest = bytesOf(message);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& [parameter, gradient] = parts[i];
    const auto code = rest.first(static_cast<std::size_t>(lengths[i]));
    rest = rest.subspan(code.size());
    const auto values = feedback_.corrected(parameter, gradient.reshape({-1}));
    codec_->encode(values, code, {.seed = seed_, .step = step, .rank = wire.rank(), .parameter = parameter});
    if (feedback_.enabled()) {
      auto sent = at::zeros_like(values);
      codec_->addDecoded(code, sent);
      feedback_.remember(parameter, values, sent);
    }
  }
  const auto messages = wire.gather(message);
  std::size_t begin = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& gradient = parts[i].gradient;
    auto sum = at::zeros({gradient.numel()}, gradient.options().dtype(workType(gradient)));
    for (const auto& other : messages) {
      codec_->addDecoded(bytesOf(other).subspan(begin, static_cast<std::size_t>(lengths[i])), sum);
    }
    begin += static_cast<std::size_t>(lengths[i]);
    gradient.copy_(sum.div_(wire.worldSize()).view(gradient.sizes()));
  }
}

}  // namespace gloo_bypass::trainer
