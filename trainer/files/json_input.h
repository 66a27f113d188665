// JSON in a file that someone else made, for a parser that takes what it wants as it comes: only a part of the text is
// in memory, and no text or number is longer than kMaxTokenBytes, since the parser holds one several times over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/files/file_io.h"

namespace gloo_bypass::trainer {

// The characters of a part of a file, from front to back. Throws UsageError for a longer token, LastingError where the
// file has become shorter. `file` must outlive it. One thread.
class JsonInput {
 public:
  static constexpr size_t kMaxTokenBytes = 1 << 16;

  // An input iterator, as the parser wants one.
  struct Iterator {
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = char;

    JsonInput* input = nullptr;  // null: the end
    char operator*() const { return input->part_[input->at_]; }
    Iterator& operator++() {
      input->advance();
      return *this;
    }
    bool operator==(const Iterator& other) const { return isEnd() == other.isEnd(); }

   private:
    bool isEnd() const { return input == nullptr || input->at_ == input->part_.size(); }
  };

  JsonInput(const InputFile& file, uint64_t begin, uint64_t bytes);
  JsonInput(const JsonInput&) = delete;
  JsonInput& operator=(const JsonInput&) = delete;

  // What parse() returns holds only what `keeps` (nlohmann's parser callback) wants; discarded if it is no JSON.
  nlohmann::json parse(const nlohmann::json::parser_callback_t& keeps);

 private:
  static constexpr size_t kPartBytes = 1 << 16;

  void advance();
  void follow(char c);
  void fill();

  const InputFile& file_;
  uint64_t next_, left_;
  std::string part_;
  size_t at_ = 0, tokenBytes_ = 0;
  bool isString_ = false, isEscaped_ = false;
};

// A short text of ours in a file, such as the options of a run: at most kMostSmallValues values. Discarded otherwise.
inline constexpr size_t kMostSmallValues = 4096;
nlohmann::json parseSmallJson(const std::string& text);

}  // namespace gloo_bypass::trainer
