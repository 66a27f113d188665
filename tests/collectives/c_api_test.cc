// The table of functions in C: what its callers' numbers and stores may be.
#include "collectives/c_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <string>

#include "collectives/c_table.h"
#include "transport/progress/progress_engine.h"

namespace gloo_bypass::collectives {
namespace {

using ::testing::HasSubstr;

// Holds what one rank has set; asked for anything else, its connection is broken.
struct OwnStore {
  std::map<std::string, std::string> values;

  gloo_bypass_store inC() {
    return {.context = this,
            .set =
                [](void* context, const char* key, const void* value, size_t length, char*, size_t) {
                  static_cast<OwnStore*>(context)->values[key].assign(static_cast<const char*>(value), length);
                  return 0;
                },
            .get =
                [](void* context, const char* key, int64_t, void (*take)(void*, const void*, size_t), void* taker,
                   char* error, size_t capacity) {
                  const auto& values = static_cast<OwnStore*>(context)->values;
                  const auto found = values.find(key);
                  if (found == values.end()) return std::snprintf(error, capacity, "Broken pipe");
                  take(taker, found->second.data(), found->second.size());
                  return 0;
                },
            .has = [](void* context, const char* key, char*,
                      size_t) { return static_cast<OwnStore*>(context)->values.contains(key) ? 1 : 0; },
            .release = nullptr};
  }
};

TEST(CTable, TheStoreBreaks_ItsErrorIsReportedAtOnceAndAsNoTimeout) {
  OwnStore store;
  const gloo_bypass_store asked = store.inC();
  char error[512] = "";
  int failure = 0;
  const TimePoint began = monotonicNow();
  EXPECT_EQ(cTable().create(0, 2, 20'000, "UDP", "", &asked, error, sizeof(error), &failure), nullptr);
  EXPECT_EQ(failure, GLOO_BYPASS_FAILED);
  EXPECT_THAT(error, HasSubstr("Broken pipe"));
  EXPECT_LT(monotonicNow() - began, std::chrono::seconds(10));
}

TEST(CTable, TheLongestTimeout_IsNoneInThePast) {
  for (const std::int64_t timeout : {std::int64_t{1} << 44, std::numeric_limits<std::int64_t>::max()}) {
    OwnStore store;
    const gloo_bypass_store asked = store.inC();
    char error[512] = "";
    int failure = 0;
    gloo_bypass_group* const group = cTable().create(0, 1, timeout, "", "", &asked, error, sizeof(error), &failure);
    ASSERT_NE(group, nullptr) << error;
    gloo_bypass_call barrier{};
    barrier.kind = GLOO_BYPASS_BARRIER;
    barrier.timeout_ms = timeout;
    EXPECT_EQ(cTable().run(group, &barrier, error, sizeof(error)), 0) << error;
    cTable().destroy(group);
  }
}

}  // namespace
}  // namespace gloo_bypass::collectives
