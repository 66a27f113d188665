#include "trainer/data/tokenizer.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tools/common/error.h"
#include "trainer/data/corpus.h"
#include "trainer/data/token_shards.h"

namespace gloo_bypass::trainer {
namespace {

using Merges = std::vector<std::pair<std::string, std::string>>;

// A vocabulary in GPT-2's format: its 256 byte tokens under GPT-2's ids, then one token a merge.
struct SmallVocabulary {
  explicit SmallVocabulary(const Merges& pairs) {
    int next = 256, id = 0;
    std::map<int, std::string> characters;
    for (const bool printable : {true, false}) {
      for (int byte = 0; byte < 256; ++byte) {
        const bool isPrintable =
            (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
        if (isPrintable == printable) {
          const int code = printable ? byte : next++;
          const std::string text =
              code < 128 ? std::string(1, static_cast<char>(code))
                         : std::string{static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
          vocab[text] = id++;
        }
      }
    }
    merges = "#version: 0.2\n";
    for (const auto& [left, right] : pairs) {
      vocab[left + right] = id++;
      merges += left + " " + right + "\n";
    }
  }
  Tokenizer tokenizer() const { return Tokenizer::bytePairsFromText(vocab.dump(), merges, "vocab.json", "merges.txt"); }
  int id(const std::string& token) const { return vocab.at(token).get<int>(); }

  nlohmann::json vocab;
  std::string merges;
};

const std::string kSpace = "\xC4\xA0";  // how GPT-2 writes a space inside a token (U+0120)

TEST(Tokenizer, Bytes_HaveGpt2Ids) {
  auto tokenizer = Tokenizer::bytes();
  // Known ids of GPT-2: "!" 0, "A" 32, "a" 64, newline 198, space 220.
  EXPECT_EQ(tokenizer.encode("!Aa\n "), (std::vector<int32_t>{0, 32, 64, 198, 220}));
  EXPECT_EQ(tokenizer.encode(std::string_view("\0\xFF", 2)), (std::vector<int32_t>{188, 187}));
}

TEST(Tokenizer, Merges_ApplyInOrderOfRank) {
  const SmallVocabulary small(
      Merges{{"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {kSpace, "w"}, {"o", "r"}, {kSpace + "w", "or"}});
  auto tokenizer = small.tokenizer();
  EXPECT_EQ(tokenizer.encode("hello world"),
            (std::vector<int32_t>{small.id("hello"), small.id(kSpace + "wor"), small.id("l"), small.id("d")}));
}

TEST(Tokenizer, LowerRank_WinsOverLeftmost) {
  const SmallVocabulary small(Merges{{"b", "c"}, {"a", "b"}});
  auto tokenizer = small.tokenizer();
  EXPECT_EQ(tokenizer.encode("abc"), (std::vector<int32_t>{small.id("a"), small.id("bc")}));
}

TEST(Tokenizer, RepeatedPair_MergesLeftToRight) {
  const SmallVocabulary small(Merges{{"a", "a"}});
  auto tokenizer = small.tokenizer();
  EXPECT_EQ(tokenizer.encode("aaa"), (std::vector<int32_t>{small.id("aa"), small.id("a")}));
}

TEST(Tokenizer, Pieces_FollowGpt2Pattern) {
  // Merges that would join across pieces show where the cuts are: none may apply.
  const SmallVocabulary small(Merges{{"s", "'"}, {"e", "1"}, {"1", "."}, {kSpace, kSpace}, {"'", "s"}, {kSpace, "x"}});
  auto tokenizer = small.tokenizer();
  EXPECT_EQ(tokenizer.encode("s's"), (std::vector<int32_t>{small.id("s"), small.id("'s")}));
  EXPECT_EQ(tokenizer.encode("e1."), (std::vector<int32_t>{small.id("e"), small.id("1"), small.id(".")}));
  // Of three spaces before a word, the last belongs to the word.
  EXPECT_EQ(tokenizer.encode("   x"), (std::vector<int32_t>{small.id(kSpace + kSpace), small.id(kSpace + "x")}));
  // Trailing spaces are one piece.
  EXPECT_EQ(tokenizer.encode("x  "), (std::vector<int32_t>{small.id("x"), small.id(kSpace + kSpace)}));
}

TEST(Tokenizer, LettersOfAllScripts_AreOnePiece) {
  // U+00E9 is the bytes C3 A9, in GPT-2's alphabet the characters U+00C3 and U+00A9.
  const SmallVocabulary small(Merges{{"\xC3\x83", "\xC2\xA9"}, {"\xC3\x83\xC2\xA9", "t"}});
  auto tokenizer = small.tokenizer();
  EXPECT_EQ(tokenizer.encode("\xC3\xA9t"), (std::vector<int32_t>{small.id("\xC3\x83\xC2\xA9t")}));
}

TEST(Tokenizer, IllFormedUtf8_KeepsItsBytes) {
  const SmallVocabulary small(Merges{});
  auto tokenizer = small.tokenizer();
  EXPECT_EQ(tokenizer.encode("a\xFF\xC3z"), Tokenizer::bytes().encode("a\xFF\xC3z"));
}

TEST(Tokenizer, Limit_CutsTheResult) {
  const SmallVocabulary small(Merges{{"a", "b"}});
  auto tokenizer = small.tokenizer();
  EXPECT_EQ(tokenizer.encode("ab c d e", 3).size(), 3u);
  EXPECT_EQ(Tokenizer::bytes().encode("abcdef", 4).size(), 4u);
}

void expectRefused(const std::string& vocab, const std::string& merges, const std::string& reason) {
  try {
    Tokenizer::bytePairsFromText(vocab, merges, "vocab.json", "merges.txt");
    FAIL() << "accepted; expected " << reason;
  } catch (const ProgramError& error) {
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
  }
}

TEST(Tokenizer, ForeignFiles_AreRefusedWithTheReason) {
  const SmallVocabulary good(Merges{{"a", "b"}});
  expectRefused("[1, 2]", good.merges, "vocab.json: not a JSON object");
  expectRefused("{\"a\": 1", good.merges, "vocab.json: not a JSON object");
  expectRefused("{\"a\": {\"b\": 1}}", good.merges, "vocab.json: not a JSON object");
  expectRefused("{\"a\": [1]}", good.merges, "vocab.json: not a JSON object");
  std::string many = "{";
  for (int i = 0; i <= 1'000'000; ++i) many += '"' + std::to_string(i) + "\":1,";
  many.back() = '}';
  expectRefused(many, good.merges, "vocab.json: more than 1000000 tokens");
  expectRefused("{\"a\": -1}", good.merges, "vocab.json: the id of token \"a\"");
  expectRefused("{\"a\": 1}", good.merges, "no token for byte");
  expectRefused(good.vocab.dump(), "#version: 0.2\na b c\n", "merges.txt:2: not two tokens");
  expectRefused(good.vocab.dump(), "a c\n", "merges.txt:1: a token of this merge is not in vocab.json");
}

// For any cut of a text. Every pair that may stand in one of the pattern's words merges, so that another word gives
// another token.
TEST(TokenisablePiece, PiecesTokens_AreTheTexts) {
  const std::string newline = "\xC4\x8A", tab = "\xC4\x89";
  Merges merges;
  for (const auto& left : {kSpace, newline, tab, std::string("a"), std::string("b")}) {
    for (const auto& right :
         {kSpace, newline, tab, std::string("a"), std::string("b"), std::string("!"), std::string("1")}) {
      merges.emplace_back(left, right);
    }
  }
  auto tokenizer = SmallVocabulary(merges).tokenizer();
  std::mt19937 random(3);
  constexpr std::array<const char*, 13> kParts{"a",  "bab", " ", "  ", "\n",       "\t",          "1",
                                               "23", "'s",  "!", "?!", "\xc3\xa9", "\xe2\x80\x83"};
  int cuts = 0;
  for (int text = 0; text < 500; ++text) {
    std::string whole;
    for (int i = 0; i < 60; ++i) whole += kParts[random() % kParts.size()];
    std::vector<int32_t> joined;
    for (std::string_view rest = whole; !rest.empty(); ++cuts) {
      const auto piece = tokenisablePiece(rest, 1 + random() % 30);
      ASSERT_FALSE(piece.empty());
      const auto ids = tokenizer.encode(piece);
      joined.insert(joined.end(), ids.begin(), ids.end());
      rest.remove_prefix(piece.size());
    }
    EXPECT_EQ(joined, tokenizer.encode(whole)) << whole;
  }
  EXPECT_GT(cuts, 1000);
  EXPECT_EQ(tokenisablePiece("one two three", 5), "one");
  EXPECT_EQ(tokenisablePiece("one two three", 1), "one");
  EXPECT_EQ(tokenisablePiece("one two three", 100), "one two three");
  EXPECT_EQ(tokenisablePiece("nowhere\n\nto cut it", 5), "nowhere\n\nto");
  EXPECT_EQ(tokenisablePiece("nowhere", 2), "nowhere");
}

std::string joined(TextPieces pieces, const std::function<void(std::string_view)>& each) {
  std::string whole;
  for (auto piece = pieces.next(); !piece.empty(); piece = pieces.next()) {
    whole += piece;
    each(piece);
  }
  return whole;
}

// However much is read at a time, the pieces make up the text and have its tokens.
TEST(TextPieces, OfTokensAndPassages_TogetherAreTheText) {
  const TemporaryFolder folder;
  auto tokenizer = SmallVocabulary({{"a", "b"}, {"b", "c"}}).tokenizer();
  auto bytes = Tokenizer::bytes();
  std::mt19937 random(4);
  constexpr std::array<const char*, 12> kParts{"a",       "bcab", " ", "  ", "\n",   "\n\n",
                                               "\n \t\n", "\t",   "1", "'s", "\r\n", "\xc3\xa9"};
  for (int text = 0; text < 200; ++text) {
    std::string whole;
    for (int i = 0; i < 60; ++i) whole += kParts[random() % kParts.size()];
    writeText(folder / "text", whole);
    for (const size_t pieceBytes : {1, 2, 7, 40, 1000}) {
      std::vector<int32_t> ids;
      EXPECT_EQ(joined(tokenisablePieces(folder / "text", tokenizer, pieceBytes),
                       [&](std::string_view piece) {
                         const auto some = tokenizer.encode(piece);
                         ids.insert(ids.end(), some.begin(), some.end());
                       }),
                whole);
      EXPECT_EQ(ids, tokenizer.encode(whole)) << whole;
      for (const auto kind : {Passages::kLines, Passages::kParagraphs}) {
        std::vector<std::string> passages;
        EXPECT_EQ(joined(passagePieces(folder / "text", kind, pieceBytes),
                         [&](std::string_view piece) {
                           for (const auto passage : passagesOf(piece, kind)) passages.emplace_back(passage);
                         }),
                  whole);
        const auto expected = passagesOf(whole, kind);
        EXPECT_EQ(passages, std::vector<std::string>(expected.begin(), expected.end())) << whole;
      }
      size_t longest = 0;
      joined(tokenisablePieces(folder / "text", bytes, pieceBytes),
             [&](std::string_view piece) { longest = std::max(longest, piece.size()); });
      EXPECT_LE(longest, pieceBytes);
    }
  }
  writeText(folder / "empty", "");
  EXPECT_EQ(joined(tokenisablePieces(folder / "empty", tokenizer), [](std::string_view) { FAIL(); }), "");
}

TEST(TextPieces, FileThatHasBecomeShorter_IsNamed) {
  const TemporaryFolder folder;
  writeText(folder / "text", std::string(100, 'a'));
  TextPieces pieces(folder / "text", [](std::string_view text) { return text.size(); }, 10);
  EXPECT_EQ(pieces.next().size(), 10u);
  writeText(folder / "text", std::string(15, 'a'));
  try {
    pieces.next();
    FAIL();
  } catch (const ProgramError& error) {
    EXPECT_EQ(error.what(), "cannot read " + folder / "text" + ": it has become shorter since it was opened");
    EXPECT_EQ(error.exitStatus(), kExitFailure);
  }
}

TEST(Corpus, Samples_AreConsecutiveWithTargetsOneFurther) {
  const TemporaryFolder folder;
  writeText(folder / "text", "abcdefghij");
  auto tokenizer = Tokenizer::bytes();
  const Corpus corpus(folder / "text", tokenizer, 3, 0);
  ASSERT_EQ(corpus.sampleCount(), 3);
  const auto sample = corpus.sample(1);
  EXPECT_EQ(std::vector<int32_t>(sample.begin(), sample.end()), tokenizer.encode("defg"));
  EXPECT_EQ(Corpus(folder / "text", tokenizer, 3, 2).sampleCount(), 2);
}

TEST(Corpus, TextDiffersAtItsBeginningOrEnd_FingerprintDiffersToo) {
  const TemporaryFolder folder;
  auto tokenizer = Tokenizer::bytes();
  for (const std::size_t samples : {1, 2, 255, 256, 257, 400, 1000}) {
    const std::size_t bytes = 3 * samples + 1;
    std::set<std::string> all;
    for (const std::size_t changed : {bytes, std::size_t{0}, bytes - 1}) {  // the first is beyond the text
      std::string text(bytes + 1, 'a');
      text[changed] = 'b';
      writeText(folder / "text", text.substr(0, bytes));
      all.insert(Corpus(folder / "text", tokenizer, 3, 0).fingerprint());
    }
    EXPECT_EQ(all.size(), 3u) << samples;
  }
}

TEST(Passages, LinesAndParagraphs_AreTrimmedAndBlankOnesAreNone) {
  using Texts = std::vector<std::string_view>;
  const std::string_view text = "\n one \r\ntwo\n \t\nthree\n\n\nfour";
  EXPECT_EQ(passagesOf(text, Passages::kLines), (Texts{"one", "two", "three", "four"}));
  EXPECT_EQ(passagesOf(text, Passages::kParagraphs), (Texts{"one \r\ntwo", "three", "four"}));
  for (const auto kind : {Passages::kLines, Passages::kParagraphs}) {
    EXPECT_EQ(passagesOf("alone", kind), Texts{"alone"});
    EXPECT_EQ(passagesOf("alone\n", kind), Texts{"alone"});
    EXPECT_TRUE(passagesOf("", kind).empty() && passagesOf(" \n\n ", kind).empty());
  }
}

TEST(Corpus, OfPassages_IsPaddedOrCutAndLeavesSingleTokensOut) {
  const TemporaryFolder folder;
  writeText(folder / "text", "abcdefgh\nx\n\nab\nabcd\n");
  auto tokenizer = Tokenizer::bytes();
  const Corpus corpus(folder / "text", tokenizer, Passages::kLines, 3, 0);
  ASSERT_EQ(corpus.sampleCount(), 3);
  const auto padded = [&](const std::string& text, size_t padding) {
    auto ids = tokenizer.encode(text);
    ids.insert(ids.end(), padding, kPadding);
    return ids;
  };
  EXPECT_EQ(corpus.sample(0), padded("abcd", 0));
  EXPECT_EQ(corpus.sample(1), padded("ab", 2));
  EXPECT_EQ(corpus.sample(2), padded("abcd", 0));
  EXPECT_EQ(corpus.targetsIn(0), 3);
  EXPECT_EQ(corpus.targetsIn(1), 1);
  EXPECT_EQ(Corpus(folder / "text", tokenizer, Passages::kLines, 3, 2).sampleCount(), 2);
  writeText(folder / "none", "a\n\nb\n");
  EXPECT_THROW(Corpus(folder / "none", tokenizer, Passages::kLines, 3, 0), ProgramError);
}

TEST(Corpus, OfPackedPassages_IsOneRowWithAnEndBehindEach) {
  const TemporaryFolder folder;
  writeText(folder / "text", " abc \n\nde\nf\n");
  for (auto tokenizer : {Tokenizer::bytes(), [] {
                           SmallVocabulary vocabulary({});
                           vocabulary.vocab["<|endoftext|>"] = 300;
                           return vocabulary.tokenizer();
                         }()}) {
    const int32_t end = tokenizer.isBytePair() ? 300 : 256;
    EXPECT_EQ(tokenizer.endOfText(), end);
    auto row = tokenizer.encode("abc.de.f.");
    for (const size_t at : {3, 6, 8}) {
      row[at] = end;
    }
    const auto corpus = Corpus::packed(folder / "text", tokenizer, Passages::kLines, 4, 0);
    ASSERT_EQ(corpus.sampleCount(), 2);
    EXPECT_FALSE(corpus.isPadded());
    EXPECT_EQ(corpus.sample(0), std::vector<int32_t>(row.begin(), row.begin() + 5));
    EXPECT_EQ(corpus.sample(1), std::vector<int32_t>(row.begin() + 4, row.end()));
    EXPECT_EQ(Corpus::packed(folder / "text", tokenizer, Passages::kLines, 4, 1).sampleCount(), 1);
  }
  auto without = SmallVocabulary({}).tokenizer();
  EXPECT_THROW(Corpus::packed(folder / "text", without, Passages::kLines, 4, 0), UsageError);
}

TEST(Corpus, UnusableText_IsRefused) {
  const TemporaryFolder folder;
  auto tokenizer = Tokenizer::bytes();
  writeText(folder / "empty", "");
  writeText(folder / "short", "abc");
  EXPECT_THROW(Corpus(folder / "missing", tokenizer, 3, 0), ProgramError);
  EXPECT_THROW(Corpus(folder / "empty", tokenizer, 3, 0), ProgramError);
  EXPECT_THROW(Corpus(folder / "short", tokenizer, 3, 0), ProgramError);
  EXPECT_THROW(Corpus("/dev/null", tokenizer, 3, 0), ProgramError);
}

}  // namespace
}  // namespace gloo_bypass::trainer
