// The errors of a build without libibverbs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/verbs/back_end.h"

namespace gloo_bypass::verbs {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(VerbsMissing, BackEndAndItsTransport_NameThePackage) {
  const BackEnd missing = backEnd();
  EXPECT_FALSE(missing.inThisBuild());
  EXPECT_EQ(missing.package, "libibverbs-dev");
  const auto refused = makePolled({});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr(missing.missing), HasSubstr("install libibverbs-dev"), Not(HasSubstr("\n"))));
}

}  // namespace
}  // namespace gloo_bypass::verbs
