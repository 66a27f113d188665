// Tables of algorithms, from a file or from another rank.
#include <climits>
#include <string>
#include <string_view>

#include "collectives/schedule/choices.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/memory_file.h"
#include "transport/base/check.h"

namespace gloo_bypass::fuzz {
using namespace collectives;
namespace {

// There is an algorithm for everything, and its parts have a size.
void useAll(const ChoiceTable& table) {
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{4096}, SIZE_MAX / 2}) {
      for (const int ranks : {1, 7, 1000}) {
        for (const bool shared : {false, true}) {
          const Circumstances now{
              .kind = static_cast<Kind>(kind), .bytes = bytes, .ranks = ranks, .sharedHosts = shared};
          GLOO_BYPASS_CHECK(table.choose(now).partBytes > 0);
          checkLine(table.explain(now));
        }
      }
    }
  }
}

}  // namespace

void fuzzChoices(std::span<const std::uint8_t> input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  ChoiceTable named;
  if (const Status status = named.prefer(text); !status.ok()) checkLine(status.error().message);
  const auto table = ChoiceTable::parse(text);
  if (!table.ok()) {
    checkLine(table.error().message);
    return;
  }
  useAll(table.value());
  // What a rank publishes is read by the others as it was.
  const auto again = ChoiceTable::parse(table.value().text());
  GLOO_BYPASS_CHECK(again.ok() && again.value().text() == table.value().text());
}

}  // namespace gloo_bypass::fuzz
