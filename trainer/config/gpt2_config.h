// The sizes of a GPT-2, by its published name or from Hugging Face's config.json. No libtorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gloo_bypass::trainer {

struct ParameterShape {
  std::string name;
  std::vector<int64_t> sizes;
};

struct Gpt2Config {
  int64_t layers;
  int64_t hidden;
  int64_t heads;
  int64_t vocabulary;
  int64_t positions;

  // distilgpt2; gpt2 (124M), gpt2-medium (355M), gpt2-large (774M), gpt2-xl (1.5B): Radford et al. 2019, table 2; and
  // tiny, for quick tests.
  static const std::vector<std::string>& names();
  static Gpt2Config of(const std::string& name);
  // Throws UsageError, one line, for another kind of file, sizes that make no model, or another arithmetic.
  static Gpt2Config fromFile(const std::string& path);

  // Names and shapes, in the order of registration in Hugging Face's GPT2Model.
  std::vector<ParameterShape> parameters() const;
  // Of a model of this size, before there is one.
  int64_t parameterCount() const {
    return (vocabulary + positions) * hidden + layers * (12 * hidden + 13) * hidden + 2 * hidden;
  }
  bool operator==(const Gpt2Config&) const = default;
};

}  // namespace gloo_bypass::trainer
