// Quotas of made-up hierarchies, as the kernel writes them.
#include "transport/progress/cpu_quota.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temporary_folder.h"

namespace gloo_bypass {
namespace {

class CpuQuota : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const std::string path = folder_ / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    writeText(path, text);
  }

  double of(const std::string& groups) const { return cpuQuota(folder_.path, groups); }

  TemporaryFolder folder_;
};

TEST_F(CpuQuota, NothingMounted_None) {
  EXPECT_EQ(of("0::/user.slice\n"), kNoQuota);
  EXPECT_EQ(of(""), kNoQuota);
}

TEST_F(CpuQuota, ContainerOfVersion2_TheRoots) {
  write("cpu.max", "150000 100000\n");
  EXPECT_EQ(of("0::/\n"), 1.5);
}

TEST_F(CpuQuota, GroupsOfVersion2_TheLeastOfThoseAbove) {
  write("system.slice/cpu.max", "400000 100000\n");
  write("system.slice/job/cpu.max", "max 100000\n");
  write("system.slice/job/step/cpu.max", "800000 100000\n");
  write("other/cpu.max", "100000 100000\n");
  EXPECT_EQ(of("0::/system.slice/job/step\n"), 4);
}

TEST_F(CpuQuota, GroupsOfVersion1_OfTheControllerCpu) {
  const std::string groups = "9:name=systemd:/\n4:cpu,cpuacct:/batch/job\n3:cpuset:/other\n0::/\n";
  write("cpu/cpu.cfs_quota_us", "-1\n");
  write("cpu/cpu.cfs_period_us", "100000\n");
  write("cpu/batch/job/cpu.cfs_quota_us", "50000\n");
  write("cpu/batch/job/cpu.cfs_period_us", "20000\n");
  write("cpu/other/cpu.cfs_quota_us", "10000\n");
  write("cpu/other/cpu.cfs_period_us", "20000\n");
  EXPECT_EQ(of(groups), 2.5);
}

// A container of version 1 reads its path on the host, and sees its own group as the root.
TEST_F(CpuQuota, PathThatIsNotMounted_TheRoots) {
  write("cpu/cpu.cfs_quota_us", "200000\n");
  write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(of("4:cpu,cpuacct:/docker/0123\n"), 2);
  EXPECT_EQ(of("4:cpu,cpuacct:/../../batch\n"), 2);
}

TEST_F(CpuQuota, NoQuotaInTheFile_None) {
  for (const char* text : {"max 100000\n", "", "0 100000\n", "-1 100000\n", "100000\n", "100000 0\n"}) {
    write("cpu.max", text);
    EXPECT_EQ(of("0::/\n"), kNoQuota) << text;
  }
}

TEST_F(CpuQuota, StrangeGroups_AreIgnored) {
  write("cpu.max", "300000 100000\n");
  for (const char* text : {"0", "0:", "0::", "0::\n", "::\n", "0::relative\n", "0::/../cpu\n", "\n\n:::::/\n"}) {
    EXPECT_EQ(of(text), 3) << text;
  }
}

}  // namespace
}  // namespace gloo_bypass
