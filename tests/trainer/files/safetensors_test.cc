#include "trainer/files/safetensors.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tests/trainer/peak_memory.h"
#include "tools/common/error.h"

namespace gloo_bypass::trainer {
namespace {

std::string lengthPrefix(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(length >> (8 * i)));
  }
  return bytes;
}

std::string file(const std::string& header, const std::string& data) {
  return lengthPrefix(header.size()) + header + data;
}

class Safetensors : public ::testing::Test {
 protected:
  void expectRefused(const std::string& bytes, const std::string& reason) {
    writeText(path_, bytes);
    try {
      const SafetensorsFile opened(path_);
      FAIL() << "accepted; expected " << reason;
    } catch (const ProgramError& error) {
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(path_), std::string::npos) << error.what();
    }
  }
  std::string writeGood() {
    const std::vector<float> floats{1, 2, 3, 4, 5, 6};
    const std::vector<double> doubles{7, 8};
    writeSafetensors(path_,
                     {{"b", {"F32", {2, 3}, std::as_bytes(std::span(floats))}},
                      {"a", {"F64", {2}, std::as_bytes(std::span(doubles))}},
                      {"empty", {"F32", {0, 4}, {}}}},
                     {{"format", "pt"}});
    return contentsOf(path_);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "model.safetensors";
};

TEST_F(Safetensors, RoundTrip_KeepsNamesShapesBytesAndMetadata) {
  writeGood();
  const SafetensorsFile opened(path_);
  ASSERT_EQ(opened.tensors().size(), 3u);
  const auto& b = opened.tensors().at("b");
  EXPECT_EQ(b.dtype, "F32");
  EXPECT_EQ(b.shape, (std::vector<int64_t>{2, 3}));
  float last = 0;
  opened.read(b, 20, std::as_writable_bytes(std::span(&last, 1)));
  EXPECT_EQ(last, 6);
  EXPECT_EQ(opened.metadata().at("format"), "pt");
}

TEST_F(Safetensors, EveryTruncation_IsRefused) {
  const std::string good = writeGood();
  for (size_t length = 0; length < good.size(); ++length) {
    writeText(path_, good.substr(0, length));
    EXPECT_THROW(SafetensorsFile{path_}, ProgramError) << length;
  }
}

TEST_F(Safetensors, EveryFlippedByteOfTheHeader_IsReadOrRefused) {
  const std::string good = writeGood();
  const size_t headerEnd = good.find("}}") + 2;
  for (size_t i = 0; i < headerEnd; ++i) {
    for (const char flip : {'\x01', '\x20', '\x80'}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      writeText(path_, bad);
      try {
        const SafetensorsFile opened(path_);
        for (const auto& [name, tensor] : opened.tensors()) {
          size_t elements = 1;
          for (const int64_t d : tensor.shape) {
            elements *= static_cast<size_t>(d);
          }
          EXPECT_EQ(tensor.bytes, elements * elementBytes(tensor.dtype));
        }
      } catch (const ProgramError&) {
      }
    }
  }
}

TEST_F(Safetensors, ForeignFiles_AreRefusedWithTheReason) {
  expectRefused("", "not a safetensors file");
  expectRefused("PK\x03\x04 a zip archive, as torch.save writes", "not a safetensors file: it begins with");
  expectRefused(lengthPrefix(1000) + "{}", "truncated");
  expectRefused(file("[1]", ""), "the header is not a JSON object");
  expectRefused(file("{\"a\": ", ""), "the header is not a JSON object");
}

TEST_F(Safetensors, HostileHeaders_AreRefusedWithTheReason) {
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return "{\"a\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
  };
  expectRefused(file("{\"a\":3}", ""), "lacks dtype, shape or data_offsets");
  expectRefused(file(tensor("X9", "[1]", "[0,4]"), "1234"), "unknown dtype");
  expectRefused(file(tensor("F32", "[-1]", "[0,4]"), "1234"), "is not a non-negative integer");
  expectRefused(file(tensor("F32", "[1.5]", "[0,4]"), "1234"), "is not a non-negative integer");
  expectRefused(file(tensor("F32", "[1]", "[4,0]"), "1234"), "lie outside");
  expectRefused(file(tensor("F32", "[1]", "[0,400]"), "1234"), "lie outside");
  expectRefused(file(tensor("F32", "[1]", "[18446744073709551612,4]"), "1234"), "lie outside");
  expectRefused(file(tensor("F32", "[2]", "[0,4]"), "1234"), "4 bytes where its shape and dtype need 8");
  expectRefused(file(tensor("F32", "[4294967296,4294967296]", "[0,0]"), ""), "the shape is too large");
  expectRefused(file(tensor("F32", "[18446744073709551615]", "[0,4]"), "1234"), "the shape is too large");
  expectRefused(file(tensor("F32", "[1]", "[0,4]"), "12345678"), "8 bytes of data, the tensors need 4");
  expectRefused(file("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                     "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
                     "123"),
                "overlap");
  expectRefused(file("{\"__metadata__\":{\"a\":1}}", ""), "is not a string");
}

TEST_F(Safetensors, HeadersThatWouldCostMemory_AreRefusedWithTheReason) {
  const std::string numbers = "0,0,0,0,0,0,0,0,0";
  const std::string good = "\"dtype\":\"U8\",\"data_offsets\":[0,0]";
  expectRefused(file("{\"a\":{" + good + ",\"shape\":[" + numbers + "]}}", ""),
                "tensor \"a\": an array of more than 8 numbers");
  expectRefused(file("{\"a\":{" + good + ",\"more\":[" + numbers + "]}}", ""),
                "tensor \"a\": an array of more than 8 numbers");
  expectRefused(file("{\"a\":{" + good + ",\"shape\":[[0]]}}", ""), "nested otherwise");
  expectRefused(file("{\"a\":{" + good + ",\"shape\":[0],\"more\":{}}}", ""), "nested otherwise");
  expectRefused(file("{\"a\":[0]}", ""), "nested otherwise");
  expectRefused(file("{\"" + std::string(70'000, 'a') + "\":3}", ""), "a text or number of more than 65536 bytes");
  expectRefused(file("{\"a\":" + std::string(70'000, '1') + "}", ""), "a text or number of more than 65536 bytes");
  const std::string tensor = "\"a\":{" + good + ",\"shape\":[0]}";
  expectRefused(file("{" + tensor + "," + tensor + "}", ""), "\"a\" is there twice");
  std::string entries = "\"0\":\"\"";
  for (int i = 1; i <= 1024; ++i) {
    entries += ",\"" + std::to_string(i) + "\":\"\"";
  }
  expectRefused(file("{\"__metadata__\":{" + entries + "}}", ""), "more than 1024 entries in __metadata__");
  expectRefused(lengthPrefix(33 << 20) + "{}", "it begins with a header length of");
}

// Unknown keys of a tensor do no harm, and escapes are read as JSON.
TEST_F(Safetensors, OtherKeysAndEscapes_AreReadAllTheSame) {
  writeText(path_, file("{ \"\\u00e9\\\"\": {\"more\": 3, "
                        "\"dtype\":\"U8\",\"shape\":[1],\"other\":[null],\"data_offsets\":[0,1]} }   ",
                        "x"));
  const SafetensorsFile opened(path_);
  ASSERT_EQ(opened.tensors().size(), 1u);
  EXPECT_EQ(opened.tensors().begin()->first, "\xc3\xa9\"");
}

TEST_F(Safetensors, LongHeaders_CostAtMostFourTimesTheirBytes) {
  constexpr size_t kBytes = 20 << 20;
  const auto list = [](const char* begin, const char* each, const char* end) {
    return testing::longList(kBytes, begin, each, end);
  };
  const std::map<std::string, std::function<std::string()>> headers{
      {"tensors", [&] { return list("{", R"("{i}":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})", "}"); }},
      {"dimensions", [&] { return list(R"({"a":{"dtype":"U8","data_offsets":[0,0],"shape":[)", "0", "]}}"); }},
      {"metadata", [&] { return list(R"({"__metadata__":{)", R"("{i}":"")", "}}"); }},
      {"keys", [&] { return list(R"({"a":{)", R"("{i}":0)", "}}"); }},
      {"text", [&] { return "{\"" + std::string(kBytes, 'a') + "\":0}"; }},
      {"number", [&] { return "{\"a\":" + std::string(kBytes, '1') + "}"; }},
      {"depth", [&] { return std::string(kBytes, '['); }},
      {"objects", [&] { return list("", R"({"a":)", ""); }},
      {"blanks", [&] { return "{" + std::string(kBytes, ' ') + "}"; }}};
  for (const auto& [name, header] : headers) {
    writeText(path_, file(header(), ""));
    EXPECT_LT(testing::peakMemoryOf([&] { const SafetensorsFile opened(path_); }), 4 * kBytes) << name;
  }
}

TEST_F(Safetensors, FileThatHasBecomeShorter_IsNamed) {
  const std::vector<float> floats(100'000, 1);
  writeSafetensors(path_, {{"a", {"F32", {100'000}, std::as_bytes(std::span(floats))}}}, {});
  const SafetensorsFile opened(path_);
  const auto& tensor = opened.tensors().at("a");
  std::vector<std::byte> bytes(tensor.bytes);
  opened.read(tensor, 0, bytes);
  const auto size = std::filesystem::file_size(path_);
  for (const auto left :
       {size - 1, size / 2, uintmax_t{1}}) {  // the first within the last page, which a mapping reads as zeros
    std::filesystem::resize_file(path_, left);
    try {
      opened.read(tensor, 0, bytes);
      FAIL() << "read " << left;
    } catch (const ProgramError& error) {
      EXPECT_EQ(error.what(), "cannot read " + path_ + ": it has become shorter since it was opened");
      EXPECT_EQ(error.exitStatus(), kExitFailure);
    }
  }
}

TEST_F(Safetensors, FailedWrite_LeavesTheOldFile) {
  const std::string good = writeGood();
  const std::vector<float> floats{1};
  EXPECT_THROW(writeSafetensors(path_, {{"a", {"F32", {2}, std::as_bytes(std::span(floats))}}}, {}), std::logic_error);
  EXPECT_EQ(contentsOf(path_), good);
}

}  // namespace
}  // namespace gloo_bypass::trainer
