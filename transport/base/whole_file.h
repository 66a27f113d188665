// Writes files that others read meanwhile: they see a whole file or none.
#pragma once

#include <chrono>
#include <string>

#include "transport/base/status.h"

namespace gloo_bypass {

// Writes beside `path` and renames: a reader sees the old text or the new one. A character device or a FIFO, also
// behind a symbolic link (/dev/stdout), is written directly; a write to a FIFO without a reader waits for kReaderBound.
// Anything else that is not a regular file is refused, also behind a link. The error gives the reason, in errno's text
// or ours; nothing is left behind. kDurable: the data reaches the disk before the rename, so that a full or failing
// disk is noticed.
enum class Durability { kOrdinary, kDurable };
Status writeWholeFile(const std::string& path, const std::string& text, Durability durability = Durability::kOrdinary);
inline constexpr std::chrono::seconds kReaderBound{1};

// %p in a path is the process id.
std::string withProcessId(std::string path);

}  // namespace gloo_bypass
