#include "transport/process/named_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gloo_bypass {
namespace {

using ::testing::HasSubstr;

TEST(NamedTransport_Acquire, UnknownName_NamesTheKnownOnes) {
  const auto transport = acquireTransport("UPD\n", "");
  ASSERT_FALSE(transport.ok());
  EXPECT_EQ(transport.error().code, ErrorCode::kConfiguration);
  EXPECT_THAT(transport.error().message, HasSubstr("no transport 'UPD\\x0a': use one of"));
  EXPECT_THAT(transport.error().message, HasSubstr("UDP"));
}

TEST(NamedTransport_Acquire, Twice_GivesTheProcessesOne) {
  const auto first = acquireTransport("UDP", "lo"), second = acquireTransport("UDP", "lo");
  ASSERT_TRUE(first.ok()) << first.error().message;
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(first.value(), second.value());
}

}  // namespace
}  // namespace gloo_bypass
