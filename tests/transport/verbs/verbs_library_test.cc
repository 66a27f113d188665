// libibverbs is loaded when a program uses RDMA, not when it starts.
#include "transport/verbs/verbs_library.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gloo_bypass::verbs {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(VerbsLibrary, Start_OfAProgramWithTheBackEnd_DoesNotLoadIt) {
  EXPECT_EQ(::dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD), nullptr);
}

TEST(VerbsLibrary, Load_LibraryMissing_ErrorNamesItAndItsPackage) {
  const auto loaded = loadVerbs("libibverbs-of-nobody.so.1");
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(loaded.error().message,
              AllOf(HasSubstr("libibverbs-of-nobody.so.1"), HasSubstr("libibverbs1"), HasSubstr("ibverbs-providers")));
}

TEST(VerbsLibrary, Load_LibraryWithoutTheFunctions_ErrorNamesTheFirstMissing) {
  const auto loaded = loadVerbs("libm.so.6");
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(loaded.error().message, AllOf(HasSubstr("libm.so.6"), HasSubstr("ibv_fork_init"),
                                            HasSubstr("IBVERBS_1.1"), HasSubstr("libibverbs1")));
}

TEST(VerbsLibrary, SystemVerbs_Twice_TheSameWorkingTable) {
  const auto first = systemVerbs();
  if (!first) GTEST_SKIP() << first.error().message;
  EXPECT_EQ(systemVerbs().value(), first.value());
  // One function needs no device; of the other, the version matters: it returns a list although there may be no device.
  EXPECT_STREQ(first.value()->completionStatusName(IBV_WC_SUCCESS), "success");
  int count = -1;
  ibv_device** list = first.value()->getDeviceList(&count);
  if (list != nullptr) {
    EXPECT_GE(count, 0);
    first.value()->freeDeviceList(list);
  }
}

// A function that the loader forgot would be null: the table has only pointers.
TEST(VerbsLibrary, Load_SystemLibrary_LeavesNoGap) {
  const auto loaded = loadVerbs("libibverbs.so.1");
  if (!loaded) GTEST_SKIP() << loaded.error().message;
  void* const* functions = reinterpret_cast<void* const*>(&loaded.value());
  for (std::size_t i = 0; i < sizeof(VerbsApi) / sizeof(void*); ++i) EXPECT_NE(functions[i], nullptr) << "member " << i;
}

}  // namespace
}  // namespace gloo_bypass::verbs
