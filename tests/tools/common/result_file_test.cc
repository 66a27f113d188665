#include "tools/common/result_file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tools/common/error.h"

namespace gloo_bypass {
namespace {

class ResultFile : public ::testing::Test {
 protected:
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_.path), {}));
  }
  const TemporaryFolder folder_;
};

TEST_F(ResultFile, ExistingFile_IsReplacedWhole) {
  const std::string path = folder_ / "out.json";
  writeResult("--json", path, "old");
  writeResult("--json", path, "new");
  EXPECT_EQ(contentsOf(path), "new");
  EXPECT_EQ(files(), 1u);
}

TEST_F(ResultFile, TargetCannotBeReplaced_LeavesNothingBehind) {
  std::filesystem::create_directories(folder_ / "out.json");
  EXPECT_THROW(writeResult("--json", folder_ / "out.json", "text"), ProgramError);
  EXPECT_EQ(files(), 1u);
}

TEST_F(ResultFile, FullDisk_LeavesTheOldFile) {
  const std::string path = folder_ / "out.json";
  writeResult("--json", path, "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit full{.rlim_cur = 2, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  EXPECT_THROW(writeResult("--json", path, "text"), ProgramError);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(std::filesystem::file_size(path), 3u);
  EXPECT_EQ(files(), 1u);
}

TEST_F(ResultFile, Device_IsWrittenToAndStaysOne) {
  // A device of the test's own: if it were replaced, nothing of the machine's would be.
  const std::string full = folder_ / "full", null = folder_ / "null";
  if (::mknod(full.c_str(), S_IFCHR | 0666, makedev(1, 7)) != 0 ||
      ::mknod(null.c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0) {
    GTEST_SKIP() << "making a device node is not allowed here";
  }
  if (::access(null.c_str(), W_OK) != 0) GTEST_SKIP() << "this file system does not open devices";
  EXPECT_NO_THROW(checkWritable("--json", full));
  EXPECT_THROW(writeResult("--json", full, "text"), ProgramError);
  EXPECT_NO_THROW(writeResult("--json", null, "text"));
  EXPECT_TRUE(std::filesystem::is_character_file(full));
  EXPECT_TRUE(std::filesystem::is_character_file(null));
  EXPECT_EQ(files(), 2u);
}

TEST_F(ResultFile, PathThatCannotBeWritten_IsFoundBeforehand) {
  EXPECT_THROW(checkWritable("--json", folder_ / "missing/out.json"), ProgramError);
  EXPECT_THROW(checkWritable("--json", folder_.path), ProgramError);
  EXPECT_NO_THROW(checkWritable("--json", folder_ / "out.json"));
  writeResult("--json", folder_ / "file", "kept");
  std::filesystem::create_symlink(folder_ / "file", folder_ / "link");
  EXPECT_THROW(checkWritable("--json", folder_ / "link"), ProgramError);
}

TEST_F(ResultFile, Failure_NamesFlagAndPath) {
  try {
    writeResult("--csv", "/no/such/folder/out.csv", "text");
    FAIL() << "written";
  } catch (const ProgramError& error) {
    EXPECT_STREQ(error.what(), "--csv: cannot write /no/such/folder/out.csv: No such file or directory");
    EXPECT_EQ(error.exitStatus(), kExitFailure);
  }
}

TEST_F(ResultFile, NoPath_WantsNothing) {
  EXPECT_NO_THROW(checkWritable("--json", ""));
  EXPECT_NO_THROW(writeResult("--json", "", "text"));
}

}  // namespace
}  // namespace gloo_bypass
