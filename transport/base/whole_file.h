// Files that others read while we write: whole or not at all.
#pragma once

#include <chrono>
#include <string>

#include "transport/base/status.h"

namespace gloo_bypass {

// Written beside `path` and renamed: a reader sees the old text or the new one. A character device or a FIFO, also
// where a symbolic link leads to it (/dev/stdout), is kept and written to directly; a reader who takes nothing is
// waited for kReaderBound. All else that is not a regular file is refused, a link to one included. The error says why,
// in errno's text or ours; nothing is left behind. kDurable: on the disk before it has its name, so that a disk that
// fills late or fails is noticed.
enum class Durability { kOrdinary, kDurable };
Status writeWholeFile(const std::string& path, const std::string& text, Durability durability = Durability::kOrdinary);
inline constexpr std::chrono::seconds kReaderBound{1};

// %p in a path is the process id.
std::string withProcessId(std::string path);

}  // namespace gloo_bypass
