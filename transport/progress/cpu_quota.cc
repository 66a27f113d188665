#include "transport/progress/cpu_quota.h"

#include <algorithm>
#include <fstream>
#include <locale>
#include <sstream>

namespace gloo_bypass {
namespace {

enum class Version { k1, k2 };

// Numbers at the beginning of a file; 0 for each that is not there: no such file, or "max".
struct Numbers {
  double first = 0, second = 0;
};

Numbers numbersIn(const std::string& path) {
  std::ifstream file(path);
  file.imbue(std::locale::classic());
  Numbers numbers;
  file >> numbers.first >> numbers.second;
  return numbers;
}

double quotaOf(const std::string& folder, Version version) {
  const Numbers limit = version == Version::k2 ? numbersIn(folder + "/cpu.max")
                                               : Numbers{numbersIn(folder + "/cpu.cfs_quota_us").first,
                                                         numbersIn(folder + "/cpu.cfs_period_us").first};
  return limit.first > 0 && limit.second > 0 ? limit.first / limit.second : kNoQuota;
}

bool contains(const std::string& list, std::string_view name) {
  std::istringstream names(list);
  for (std::string one; std::getline(names, one, ',');) {
    if (one == name) return true;
  }
  return false;
}

}  // namespace

double cpuQuota(const std::string& mount, std::string_view groups) {
  const std::string mountOfVersion1 = mount + "/cpu";
  // In a container these are the process's own groups.
  double least = std::min(quotaOf(mount, Version::k2), quotaOf(mountOfVersion1, Version::k1));
  std::istringstream lines{std::string(groups)};
  // hierarchy:controllers:/path; version 2 has no controllers in its line.
  for (std::string hierarchy, controllers, path;
       std::getline(lines, hierarchy, ':') && std::getline(lines, controllers, ':') && std::getline(lines, path);) {
    const Version version = controllers.empty() ? Version::k2 : Version::k1;
    if (version == Version::k1 && !contains(controllers, "cpu")) continue;
    // From outside of the process's view (cgroup_namespaces(7)), it begins with /.. and is not mounted here.
    if (!path.starts_with('/') || path.starts_with("/..")) continue;
    const std::string& root = version == Version::k2 ? mount : mountOfVersion1;
    for (; path.size() > 1; path.resize(path.rfind('/'))) least = std::min(least, quotaOf(root + path, version));
  }
  return least;
}

double cpuQuota() {
  std::ifstream file("/proc/self/cgroup");
  std::ostringstream text;
  text << file.rdbuf();
  return cpuQuota("/sys/fs/cgroup", text.str());
}

}  // namespace gloo_bypass
