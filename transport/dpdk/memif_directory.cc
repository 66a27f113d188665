#include "transport/dpdk/memif_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <set>

#include "transport/base/boot_id.h"
#include "transport/base/packet_socket.h"
#include "transport/base/printable.h"
#include "transport/dpdk/port_address.h"

namespace gloo_bypass::dpdk {
namespace {

constexpr std::size_t kIdHexBytes = 2 * std::tuple_size_v<PortId>;
// "/" + id + ".sock.tmp", with room for a few bytes more.
constexpr std::size_t kNameBytes = 1 + kIdHexBytes + 12;
static_assert(kMaxMemifDirectoryBytes + kNameBytes == kMaxSocketPathBytes);
// A socket that is still being made has no .sock yet: leave young ones alone.
constexpr std::time_t kYoungSeconds = 60;
// Of a port's id, at its end: the first ones of the machine's.
constexpr std::size_t kMachineBytes = 4;

// For programs without a configuration; transport/process/environment.cc, which reads the environment, prefers
// XDG_RUNTIME_DIR.
std::string defaultDirectory() { return fmt::format("/tmp/gloo-bypass-{}", ::geteuid()); }

bool isOurName(const std::string& name) {
  return name.size() > kIdHexBytes + 1 && name[kIdHexBytes] == '.' &&
         name.find_first_not_of("0123456789abcdef") == kIdHexBytes;
}

bool isYoung(const std::string& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) != 0 || std::time(nullptr) - status.st_mtime < kYoungSeconds;
}

// A live port listens on its .sock before it makes anything else, and until everything else is gone.
bool ownerIsDead(const std::string& base) {
  FileDescriptor ignored;
  return connectPacketSocket(base + ".sock", ignored) == ConnectResult::kRefused;
}

void sweep(const std::string& directory) {
  // Sockets of other machines, where hosts share the folder, cannot be reached from here, and live.
  const std::string machine = toHex(machineId()).substr(0, 2 * kMachineBytes);
  std::set<std::string> dead;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!isOurName(name) || name.compare(kIdHexBytes - machine.size(), machine.size(), machine) != 0) continue;
    const std::string path = entry.path().string();
    const std::string base = directory + "/" + name.substr(0, kIdHexBytes);
    const bool hasMain = ::access((base + ".sock").c_str(), F_OK) == 0;
    if (!hasMain && isYoung(path)) continue;
    if (dead.contains(base) || ownerIsDead(base)) {
      dead.insert(base);
      if (!name.ends_with(".sock")) ::unlink(path.c_str());
    }
  }
  for (const std::string& base : dead) ::unlink((base + ".sock").c_str());
}

}  // namespace

Error unusableMemifDirectory(const TransportConfig& config, const std::string& directory, const std::string& why) {
  const bool named = !config.memifDirectory.empty() && !config.memifDirectoryIsDefault;
  return Error{ErrorScope::kDevice, named ? ErrorCode::kConfiguration : ErrorCode::kUnavailable,
               fmt::format("memif directory '{}' {}: set GLOO_BYPASS_MEMIF_DIRECTORY to one of your own",
                           printable(directory), why)};
}

Result<std::string> prepareMemifDirectory(const TransportConfig& config) {
  std::string directory = config.memifDirectory.empty() ? defaultDirectory() : config.memifDirectory;
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  const auto refuse = [&](const std::string& why) { return unusableMemifDirectory(config, directory, why); };
  if (directory.front() != '/') return refuse("is not an absolute path");
  if (directory.size() > kMaxMemifDirectoryBytes) {
    return refuse(fmt::format("is longer than {} bytes", kMaxMemifDirectoryBytes));
  }
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return refuse(fmt::format("cannot be made ({})", std::strerror(errno)));
  }
  struct stat status{};
  if (::lstat(directory.c_str(), &status) != 0) return refuse(std::strerror(errno));
  if (!S_ISDIR(status.st_mode)) return refuse("is not a directory");
  if (status.st_uid != ::geteuid()) return refuse(fmt::format("belongs to user {}", status.st_uid));
  if ((status.st_mode & 0077) != 0) {
    return refuse(fmt::format("is open to other users (mode {:o}, needed 700)", status.st_mode & 0777));
  }
  if (::access(directory.c_str(), R_OK | W_OK | X_OK) != 0) {
    return refuse(fmt::format("cannot be written ({})", std::strerror(errno)));
  }
  sweep(directory);
  return directory;
}

PortId machineId() {
  PortId id{};
  std::string text = bootId();
  std::erase(text, '-');
  for (std::size_t i = 0; i < id.size() && 2 * i + 1 < text.size(); ++i) {
    id[i] = static_cast<std::uint8_t>(std::strtoul(text.substr(2 * i, 2).c_str(), nullptr, 16));
  }
  return id;
}

void endWithMachine(PortId& id) {
  const PortId machine = machineId();
  std::copy_n(machine.begin(), kMachineBytes, id.end() - kMachineBytes);
}

FileDescriptor keepFromAging(const std::string& directory) {
  FileDescriptor folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder && ::flock(folder.get(), LOCK_SH | LOCK_NB) != 0) folder.reset();
  return folder;
}

PortId directoryId(const std::string& directory) {
  PortId id{};
  struct stat status{};
  if (::stat(directory.c_str(), &status) != 0) return id;
  const std::array<std::uint64_t, 2> numbers{status.st_dev, status.st_ino};
  static_assert(sizeof(numbers) == sizeof(id));
  std::memcpy(id.data(), numbers.data(), sizeof(id));
  return id;
}

}  // namespace gloo_bypass::dpdk
