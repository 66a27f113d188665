#include "transport/base/printable.h"

#include <string>

#include <gtest/gtest.h>

namespace gloo_bypass {
namespace {

using namespace std::string_literals;

TEST(Printable, PlainText_StaysAsItIs) {
  const std::string text = "rank 3 on h\xc3\xb6st \xe2\x82\xac \xf0\x9f\x98\x80 \\x1b ~";
  EXPECT_EQ(printable(text), text);
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, ControlCharacters_AreHexadecimal) {
  EXPECT_EQ(printable("\x1b[2J\x1b]0;owned\x07"), "\\x1b[2J\\x1b]0;owned\\x07");
  EXPECT_EQ(printable("a\r\nrank 0: all is well\n"), "a\\x0d\\x0arank 0: all is well\\x0a");
  EXPECT_EQ(printable("\0\x7f"s), "\\x00\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m")
      << "U+009B begins a sequence as ESC [ does";
  EXPECT_EQ(printable("\xc2\xa0"), "\xc2\xa0");
}

TEST(Printable, InvalidUtf8_IsHexadecimal) {
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "\\x9b31m");
  EXPECT_EQ(printable("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b") << "two bytes for what one holds";
  EXPECT_EQ(printable("\xe0\x80\x9b"), "\\xe0\\x80\\x9b");
  EXPECT_EQ(printable("\xf0\x80\x80\x9b"), "\\xf0\\x80\\x80\\x9b");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "above U+10FFFF";
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82") << "cut off";
  EXPECT_EQ(printable("\xe2\x1b[m"), "\\xe2\\x1b[m") << "a sequence swallows nothing that is not its own";
}

TEST(Printable, EscapedText_IsNotEscapedAgain) { EXPECT_EQ(printable(printable("\x1b\xff")), "\\x1b\\xff"); }

}  // namespace
}  // namespace gloo_bypass
