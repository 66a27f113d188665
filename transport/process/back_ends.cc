#include "transport/process/back_ends.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "transport/dpdk/back_end.h"
#include "transport/udp/back_end.h"
#include "transport/verbs/back_end.h"

namespace gloo_bypass {

std::span<const BackEnd> backEnds() {
  static const auto& table =
      *new std::vector<BackEnd>{dpdk::backEnd(), udp::backEnd(), verbs::backEnd()};  // never destroyed: used at exit
  return table;
}

const BackEnd* findBackEnd(std::string_view name) {
  const auto found = std::find_if(backEnds().begin(), backEnds().end(), [&](const auto& b) { return b.name == name; });
  return found == backEnds().end() ? nullptr : &*found;
}

std::string whyMissing(const BackEnd& backEnd) {
  if (backEnd.inThisBuild()) return "";
  return fmt::format("not in this build ({}): install {} and build again", backEnd.missing, backEnd.package);
}

}  // namespace gloo_bypass
