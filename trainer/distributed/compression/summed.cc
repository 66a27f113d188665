#include "trainer/distributed/compression/summed.h"

#include <limits>

#include <ATen/ATen.h>

#include "trainer/distributed/compression/kept_count.h"

namespace gloo_bypass::trainer {
namespace {

at::Tensor joined(const std::vector<at::Tensor>& flat) { return flat.size() == 1 ? flat[0] : at::cat(flat); }

struct Drawn {
  at::Tensor indices;     // (k), int64, ascending
  at::Tensor runLengths;  // (k), how many elements each was drawn from
};

Drawn draw(int64_t count, double ratio, const DrawPlace& place, const at::TensorOptions& options) {
  const int64_t kept = keptCount(count, ratio);
  const auto chance = at::rand({kept}, generatorAt(place), at::TensorOptions().dtype(at::kDouble));
  Drawn drawn{at::empty({kept}, at::kLong), at::empty({kept}, options)};
  auto* index = drawn.indices.data_ptr<int64_t>();
  auto lengths = at::empty({kept}, at::kLong);
  auto* length = lengths.data_ptr<int64_t>();
  const auto* u = chance.data_ptr<double>();
  for (int64_t i = 0, begin = 0; i < kept; ++i) {
    // (i + 1) count / kept without overflow
    const int64_t end = (i + 1) * (count / kept) + (i + 1) * (count % kept) / kept;
    length[i] = end - begin;
    index[i] = begin + static_cast<int64_t>(u[i] * static_cast<double>(length[i]));
    begin = end;
  }
  drawn.runLengths.copy_(lengths);
  return drawn;
}

}  // namespace

void Cast::reduce(std::span<const GradientPart> parts, int64_t /*step*/, Wire& wire) {
  std::vector<at::Tensor> flat;
  for (const auto& part : parts) flat.push_back(part.gradient.reshape({-1}));
  auto narrow = joined(flat).to(type_).div_(wire.worldSize());
  wire.sum(narrow);
  int64_t begin = 0;
  for (const auto& part : parts) {
    part.gradient.copy_(narrow.narrow(0, begin, part.gradient.numel()).view(part.gradient.sizes()));
    begin += part.gradient.numel();
  }
}

void RandomK::reduce(std::span<const GradientPart> parts, int64_t step, Wire& wire) {
  std::vector<at::Tensor> indices, values;
  for (const auto& [parameter, gradient] : parts) {
    const auto corrected = feedback_.corrected(parameter, gradient.reshape({-1}));
    const auto drawn = draw(corrected.numel(), ratio_,
                            {.seed = seed_, .step = step, .rank = -1, .parameter = parameter}, corrected.options());
    auto chosen = corrected.index_select(0, drawn.indices);
    if (!corrected.isfinite().all().item<bool>())
      chosen.fill_(std::numeric_limits<double>::quiet_NaN());  // else it might stay hidden
    if (feedback_.enabled()) {
      feedback_.remember(parameter, corrected, at::zeros_like(corrected).index_copy_(0, drawn.indices, chosen));
    } else {
      chosen.mul_(drawn.runLengths);
    }
    indices.push_back(drawn.indices);
    values.push_back(std::move(chosen));
  }
  auto sent = joined(values);
  wire.sum(sent);
  sent.div_(wire.worldSize());
  int64_t begin = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto flat = at::zeros({parts[i].gradient.numel()}, sent.options());
    flat.index_copy_(0, indices[i], sent.narrow(0, begin, indices[i].numel()));
    begin += indices[i].numel();
    parts[i].gradient.copy_(flat.view(parts[i].gradient.sizes()));
  }
}

}  // namespace gloo_bypass::trainer
