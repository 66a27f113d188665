#include "tools/fabric/core/description_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

namespace gloo_bypass::fabric {

Result<Description> loadDescription(const std::string& path, const std::vector<DescriptionFlag>& flags) {
  DescriptionInput input;
  input.flags = flags;
  if (path.empty()) {
    input.name = "flags";
    return parseDescription(input);
  }
  const auto unavailable = [&](const char* reason) {
    return Error{ErrorScope::kDevice, ErrorCode::kUnavailable,
                 "fabric description " + path + " cannot be read: " + reason};
  };
  std::ifstream file(path, std::ios::binary);
  if (!file) return unavailable(std::strerror(errno));
  // One byte more than is allowed tells an overlong file from one that just fits.
  input.text.resize(DescriptionInput::kMaxBytes + 1);
  file.read(input.text.data(), static_cast<std::streamsize>(input.text.size()));
  if (file.bad()) return unavailable("reading failed; is it a directory?");
  input.text.resize(static_cast<std::size_t>(file.gcount()));
  input.name = path;
  return parseDescription(input);
}

}  // namespace gloo_bypass::fabric
