// Which boot of which machine this is: the same in all its containers and pods. Any thread.
#pragma once

#include <fstream>
#include <string>

namespace gloo_bypass {

// A UUID as text (random(4)); empty if /proc does not say.
inline std::string bootId() {
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  return text;
}

}  // namespace gloo_bypass
