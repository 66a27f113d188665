#include "trainer/config/gpt2_config.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/common/error.h"
#include "trainer/files/json_input.h"
#include "transport/base/printable.h"

namespace gloo_bypass::trainer {
namespace {

const std::vector<std::pair<std::string, Gpt2Config>> kKnown{
    {"distilgpt2", {.layers = 6, .hidden = 768, .heads = 12, .vocabulary = 50257, .positions = 1024}},
    {"gpt2", {.layers = 12, .hidden = 768, .heads = 12, .vocabulary = 50257, .positions = 1024}},
    {"gpt2-medium", {.layers = 24, .hidden = 1024, .heads = 16, .vocabulary = 50257, .positions = 1024}},
    {"gpt2-large", {.layers = 36, .hidden = 1280, .heads = 20, .vocabulary = 50257, .positions = 1024}},
    {"gpt2-xl", {.layers = 48, .hidden = 1600, .heads = 25, .vocabulary = 50257, .positions = 1024}},
    {"tiny", {.layers = 2, .hidden = 32, .heads = 4, .vocabulary = 512, .positions = 128}}};

// Far above every published one; a model of these sizes has fewer than 2^57 parameters, so that its bytes can be
// counted.
constexpr int64_t kMostLayers = 4096, kLargestSize = 1 << 20;

constexpr size_t kMostBytes = 1 << 20;  // published ones have about 1 KB
constexpr int kMostNested = 16;         // published ones have three levels

// What a config.json may say otherwise and this model has not: key, and the only value taken (also where the key is
// absent).
const std::vector<std::pair<const char*, nlohmann::json>> kFixed{
    {"model_type", "gpt2"},        {"activation_function", "gelu_new"}, {"layer_norm_epsilon", 1e-5},
    {"tie_word_embeddings", true}, {"scale_attn_weights", true},        {"scale_attn_by_inverse_layer_idx", false}};

constexpr const char* kSizes[] = {"n_layer", "n_embd", "n_head", "vocab_size", "n_positions", "n_inner"};

bool isRead(const std::string& key) {
  return std::ranges::find(kSizes, key) != std::end(kSizes) ||
         std::ranges::any_of(kFixed, [&](const auto& fixed) { return key == fixed.first; });
}

// In a message.
std::string shown(const nlohmann::json& value) {
  constexpr size_t kMost = 100;
  const std::string text = value.dump();
  return printable(text.size() > kMost ? text.substr(0, kMost) + "..." : text);
}

// Only what is read of the file, each a single value: whatever else it holds takes no memory.
nlohmann::json valuesIn(const InputFile& file) {
  using Event = nlohmann::json::parse_event_t;
  std::string key;
  return JsonInput(file, 0, file.size()).parse([&](int depth, Event event, const nlohmann::json& part) {
    if (depth > kMostNested) {
      throw UsageError(fmt::format("{} is no config.json of Hugging Face's: it is nested too deep", file.path()));
    }
    if (event == Event::key && depth == 1) {
      key = part.get<std::string>();
    }
    if ((event == Event::object_start || event == Event::array_start) && depth == 1 && isRead(key)) {
      throw UsageError(fmt::format("{}: {} must be a single value", file.path(), key));
    }
    return depth == 0 || isRead(key);
  });
}

}  // namespace

const std::vector<std::string>& Gpt2Config::names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, config] : kKnown) {
      all.push_back(name);
    }
    return all;
  }();
  return names;
}

Gpt2Config Gpt2Config::of(const std::string& name) {
  const auto found = std::find_if(kKnown.begin(), kKnown.end(), [&](const auto& known) { return known.first == name; });
  if (found == kKnown.end()) {
    throw UsageError(fmt::format("there is no model '{}'", name));
  }
  return found->second;
}

std::vector<ParameterShape> Gpt2Config::parameters() const {
  const int64_t c = hidden;
  std::vector<ParameterShape> all{{"wte.weight", {vocabulary, c}}, {"wpe.weight", {positions, c}}};
  for (int64_t i = 0; i < layers; ++i) {
    for (auto& [name, sizes] : std::vector<ParameterShape>{{"ln_1.weight", {c}},
                                                           {"ln_1.bias", {c}},
                                                           {"attn.c_attn.weight", {c, 3 * c}},
                                                           {"attn.c_attn.bias", {3 * c}},
                                                           {"attn.c_proj.weight", {c, c}},
                                                           {"attn.c_proj.bias", {c}},
                                                           {"ln_2.weight", {c}},
                                                           {"ln_2.bias", {c}},
                                                           {"mlp.c_fc.weight", {c, 4 * c}},
                                                           {"mlp.c_fc.bias", {4 * c}},
                                                           {"mlp.c_proj.weight", {4 * c, c}},
                                                           {"mlp.c_proj.bias", {c}}}) {
      all.push_back({fmt::format("h.{}.{}", i, name), std::move(sizes)});
    }
  }
  all.push_back({"ln_f.weight", {c}});
  all.push_back({"ln_f.bias", {c}});
  return all;
}

Gpt2Config Gpt2Config::fromFile(const std::string& path) {
  const InputFile file(path);
  if (file.size() > kMostBytes) {
    throw UsageError(fmt::format("{} is no config.json of Hugging Face's: it has {} bytes", path, file.size()));
  }
  const auto json = valuesIn(file);
  if (!json.is_object()) {
    throw UsageError(path + " is no config.json of Hugging Face's: it holds no JSON object");
  }
  for (const auto& [key, value] : kFixed) {
    if (const auto found = json.find(key); found != json.end() && *found != value) {
      throw UsageError(fmt::format("{}: {} is {}, only {} can be trained", path, key, shown(*found), value.dump()));
    }
  }
  const auto size = [&](const char* key, int64_t largest = kLargestSize) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_number_integer() || *found < 1 || *found > largest) {
      throw UsageError(fmt::format("{}: {} must be a whole number from 1 to {}", path, key, largest));
    }
    return found->get<int64_t>();
  };
  const Gpt2Config config{.layers = size("n_layer", kMostLayers),
                          .hidden = size("n_embd"),
                          .heads = size("n_head"),
                          .vocabulary = size("vocab_size"),
                          .positions = size("n_positions")};
  if (config.hidden % config.heads != 0) {
    throw UsageError(
        fmt::format("{}: n_embd {} cannot be shared by n_head {} alike", path, config.hidden, config.heads));
  }
  if (const auto inner = json.find("n_inner");
      inner != json.end() && !inner->is_null() && *inner != 4 * config.hidden) {
    throw UsageError(fmt::format("{}: n_inner is {}, only four times n_embd can be trained", path, shown(*inner)));
  }
  return config;
}

}  // namespace gloo_bypass::trainer
