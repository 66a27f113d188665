#include "transport/sessions/credentials.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "transport/base/file_descriptor.h"
#include "transport/base/printable.h"
#include "transport/security/self_check.h"

namespace gloo_bypass {
namespace {

constexpr std::size_t kDigits = 2 * security::kSecretBytes;

std::optional<int> valueOf(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return {};
}

std::optional<security::Secret> parseKey(std::string_view line) {
  if (line.size() != kDigits) return {};
  security::Secret key;
  for (std::size_t i = 0; i < security::kSecretBytes; ++i) {
    const auto high = valueOf(line[2 * i]), low = valueOf(line[2 * i + 1]);
    if (!high || !low) return {};
    key.writable()[i] = static_cast<std::byte>(*high << 4 | *low);
  }
  return key;
}

// Empty: the text is not that of a key file.
std::vector<security::Secret> parseKeys(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  std::vector<security::Secret> keys;
  while (true) {
    const std::size_t end = text.find('\n');
    const auto key = parseKey(text.substr(0, end));
    if (!key || keys.size() == security::kMaxPreSharedKeys) return {};
    keys.push_back(*key);
    if (end == std::string_view::npos) return keys;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

Result<std::vector<security::Secret>> readKeyFile(const std::string& path) {
  const auto fails = [&path](const std::string& why) {
    return Error{ErrorScope::kDevice, ErrorCode::kConfiguration,
                 fmt::format("GLOO_BYPASS_KEY_FILE='{}': {}", printable(path), why)};
  };
  // Without waiting for whoever opens the other end of a FIFO.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status{};
  if (!file || ::fstat(file.get(), &status) != 0) return fails(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return fails("it is not a regular file");
  if (status.st_uid != ::geteuid()) return fails("it is not this user's: its owner must be the user of the ranks");
  if ((status.st_mode & 077) != 0) {
    return fails(fmt::format("others may read or write it (mode {:04o}): chmod 600", status.st_mode & 07777));
  }
  std::array<char, security::kMaxPreSharedKeys*(kDigits + 1) + 1> text{};
  const ssize_t length = ::read(file.get(), text.data(), text.size());
  if (length < 0) return fails(std::strerror(errno));
  auto keys = parseKeys({text.data(), static_cast<std::size_t>(length)});
  security::wipe(std::as_writable_bytes(std::span(text)));
  if (keys.empty()) {
    return fails("it must have a line of 64 hexadecimal digits, as from: openssl rand -hex 32, or two such lines");
  }
  return keys;
}

Result<std::shared_ptr<const security::Credentials>> loadCredentials(const TransportConfig& config) {
  if (config.security == Security::kOff) return std::shared_ptr<const security::Credentials>();
  if (const Status checked = security::checkLibraries(); !checked) return checked.error();
  auto made = std::make_shared<security::Credentials>();
  made->job = config.job;
  if (!config.keyFile.empty()) {
    auto keys = readKeyFile(config.keyFile);
    if (!keys) return keys.error();
    made->preSharedKeys = std::move(keys.value());
  }
  return std::shared_ptr<const security::Credentials>(std::move(made));
}

std::optional<security::Secret> drawSecret() {
  security::Secret drawn;
  if (::getentropy(drawn.writable().data(), security::kSecretBytes) != 0) return {};
  return drawn;
}

}  // namespace gloo_bypass
