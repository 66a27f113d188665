#include "trainer/config/gpt2_config.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/peak_memory.h"
#include "tools/common/error.h"

namespace gloo_bypass::trainer {
namespace {

// The counts of transformers 4.46 for GPT2LMHeadModel(GPT2Config.from_pretrained(NAME)), with the embedding as the
// head.
TEST(Gpt2Config, Published_HaveTheirNumbersOfParameters) {
  EXPECT_EQ(Gpt2Config::of("distilgpt2").parameterCount(), 81'912'576);
  EXPECT_EQ(Gpt2Config::of("gpt2").parameterCount(), 124'439'808);
  EXPECT_EQ(Gpt2Config::of("gpt2-medium").parameterCount(), 354'823'168);
  EXPECT_EQ(Gpt2Config::of("gpt2-large").parameterCount(), 774'030'080);
  EXPECT_EQ(Gpt2Config::of("gpt2-xl").parameterCount(), 1'557'611'200);
}

TEST(Gpt2Config, Names_AreThoseOfTheModels) {
  for (const auto& name : Gpt2Config::names()) {
    const auto config = Gpt2Config::of(name);
    EXPECT_EQ(config.hidden % config.heads, 0) << name;
  }
  EXPECT_THROW(Gpt2Config::of("gpt3"), UsageError);
}

// The file of the model hub, with keys that do not concern sizes.
const nlohmann::json kMedium =
    nlohmann::json::parse(R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1, "bos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2",
    "n_ctx": 1024, "n_embd": 1024, "n_head": 16, "n_layer": 24, "n_positions": 1024, "n_special": 0, "vocab_size": 50257,
    "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}})");

class Gpt2ConfigFile : public ::testing::Test {
 protected:
  Gpt2Config read(const std::string& text) {
    writeText(path_, text);
    return Gpt2Config::fromFile(path_);
  }
  // The error for the published file with one key changed; the message names the file.
  std::string refusalOf(const std::string& key, const nlohmann::json& value) {
    auto changed = kMedium;
    changed[key] = value;
    return refusalOf(changed.dump());
  }
  std::string refusalOf(const std::string& text) {
    try {
      read(text);
    } catch (const UsageError& error) {
      const std::string message = error.what();
      EXPECT_EQ(message.rfind(path_, 0), 0u) << message;
      return message.substr(path_.size());
    }
    return "accepted";
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "config.json";
};

TEST_F(Gpt2ConfigFile, Published_IsTheModelOfThatName) {
  EXPECT_EQ(read(kMedium.dump()), Gpt2Config::of("gpt2-medium"));
  auto spelledOut = kMedium;
  spelledOut["n_inner"] = 4096;
  EXPECT_EQ(read(spelledOut.dump()), Gpt2Config::of("gpt2-medium"));
}

TEST_F(Gpt2ConfigFile, SizesThatMakeNoModel_AreRefused) {
  for (const char* key : {"n_embd", "n_head", "n_positions", "vocab_size"}) {
    const std::string message = std::string(": ") + key + " must be a whole number from 1 to 1048576";
    for (const nlohmann::json& value :
         {nlohmann::json(0), nlohmann::json(-1), nlohmann::json(1 << 21), nlohmann::json(UINT64_MAX),
          nlohmann::json(1.5), nlohmann::json("12"), nlohmann::json()}) {
      EXPECT_EQ(refusalOf(key, value), message) << value;
    }
  }
  EXPECT_EQ(refusalOf("n_layer", 4097), ": n_layer must be a whole number from 1 to 4096");
  EXPECT_EQ(refusalOf("n_head", 12), ": n_embd 1024 cannot be shared by n_head 12 alike");
}

TEST_F(Gpt2ConfigFile, AnotherArithmetic_IsRefused) {
  EXPECT_EQ(refusalOf("model_type", "llama"), ": model_type is \"llama\", only \"gpt2\" can be trained");
  EXPECT_EQ(refusalOf("activation_function", "relu"),
            ": activation_function is \"relu\", only \"gelu_new\" can be trained");
  EXPECT_EQ(refusalOf("tie_word_embeddings", false), ": tie_word_embeddings is false, only true can be trained");
  EXPECT_EQ(refusalOf("n_inner", 1024), ": n_inner is 1024, only four times n_embd can be trained");
}

TEST_F(Gpt2ConfigFile, ControlCharactersAndLongTexts_AreShownPrintableAndCut) {
  EXPECT_EQ(refusalOf("model_type", "l\x7f"), ": model_type is \"l\\x7f\", only \"gpt2\" can be trained");
  const std::string shown = ": model_type is \"" + std::string(99, 'a') + "..., only \"gpt2\" can be trained";
  EXPECT_EQ(refusalOf("model_type", std::string(1000, 'a')), shown);
}

TEST_F(Gpt2ConfigFile, ListForASingleValue_IsRefused) {
  for (const char* key : {"n_layer", "n_inner", "model_type", "tie_word_embeddings"}) {
    for (const auto& value : {nlohmann::json::array({1}), nlohmann::json::object()}) {
      EXPECT_EQ(refusalOf(key, value), std::string(": ") + key + " must be a single value");
    }
  }
}

TEST_F(Gpt2ConfigFile, LongFiles_CostAtMostFourTimesTheirBytes) {
  constexpr size_t kBytes = (1 << 20) - 100;
  const auto list = [](const char* begin, const char* each, const char* end) {
    return testing::longList(kBytes, begin, each, end);
  };
  for (const std::string& text :
       {list("{\"a\":[", "0", "]}"), list("{\"n_layer\":[", "0", "]}"), list("{", "\"{i}\":0", "}"),
        list("{", "\"n_layer\":0", "}"), list("{\"a\":[", "{}", "]}"), list("", "{\"a\":", ""),
        list("{\"a\":[", "[[[[[[[[]]]]]]]]", "]}"), std::string(kBytes, '['), std::string(kBytes, ' '),
        "{\"" + std::string(kBytes, 'a') + "\":0}", "{\"model_type\":\"" + std::string(kBytes, 'a') + "\"}",
        "{\"n_layer\":" + std::string(kBytes, '1') + "}"}) {
    writeText(path_, text);
    EXPECT_LT(testing::peakMemoryOf([&] { (void)Gpt2Config::fromFile(path_); }), 4 * kBytes) << text.substr(0, 40);
  }
  EXPECT_EQ(refusalOf(std::string(2 << 20, ' ')), " is no config.json of Hugging Face's: it has 2097152 bytes");
}

TEST_F(Gpt2ConfigFile, NoConfiguration_IsRefused) {
  for (const char* text : {"", "{", "[1]", "\x80"}) {
    EXPECT_EQ(refusalOf(text), " is no config.json of Hugging Face's: it holds no JSON object") << text;
  }
  EXPECT_NE(refusalOf("{}").find("n_layer must be"), std::string::npos);
}

}  // namespace
}  // namespace gloo_bypass::trainer
