// The table of back-ends: no other part of the libraries knows which ones exist.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "transport/channel/back_end.h"

namespace gloo_bypass {

// All back-ends of the sources, including those that this build lacks. Any thread; lives until the process has ended.
std::span<const BackEnd> backEnds();

// By its name, matched exactly; null if there is none.
const BackEnd* findBackEnd(std::string_view name);

// One line for a back-end that this build lacks: the missing part and what to do. Empty if this build has it.
std::string whyMissing(const BackEnd& backEnd);

}  // namespace gloo_bypass
