#include "trainer/distributed/compression/summed.h"

#include <cmath>
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
  int64_t total = 0, begin = 0;
  for (const auto& part : parts) total += part.gradient.numel();
  auto narrow = at::empty({total}, type_);
  for (const auto& part : parts) {
    narrow.narrow(0, begin, part.gradient.numel()).copy_(part.gradient.reshape({-1}));
    begin += part.gradient.numel();
  }
  narrow.div_(wire.worldSize());
  wire.sum(narrow);
  wire.finished();
  begin = 0;
  for (const auto& part : parts) {
    part.gradient.copy_(narrow.narrow(0, begin, part.gradient.numel()).view(part.gradient.sizes()));
    begin += part.gradient.numel();
  }
}

void RandomK::reduce(std::span<const GradientPart> parts, int64_t step, Wire& wire) {
  std::vector<at::Tensor> indices, chosenOfAll;
  for (const auto& [parameter, gradient] : parts) {
    const auto values = feedback_.owed(parameter, gradient.reshape({-1}));
    const auto drawn = draw(values.numel(), ratio_, {.seed = seed_, .step = step, .rank = -1, .parameter = parameter},
                            values.options());
    auto chosen = values.index_select(0, drawn.indices);
    const auto [least, most] = values.aminmax();
    if (!std::isfinite(least.item<double>()) || !std::isfinite(most.item<double>())) {
      chosen.fill_(std::numeric_limits<double>::quiet_NaN());  // else it might stay hidden
    }
    if (feedback_.enabled()) {
      values.index_fill_(0, drawn.indices, 0);
    } else {
      chosen.mul_(drawn.runLengths);
    }
    indices.push_back(drawn.indices);
    chosenOfAll.push_back(std::move(chosen));
  }
  auto sent = joined(chosenOfAll);
  wire.sum(sent);
  wire.finished();
  sent.div_(wire.worldSize());
  int64_t begin = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const InPlace mean(parts[i].gradient);
    mean.values().zero_().index_copy_(0, indices[i], sent.narrow(0, begin, indices[i].numel()));
    begin += indices[i].numel();
  }
}

}  // namespace gloo_bypass::trainer
