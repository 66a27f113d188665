// The table of back-ends: the only place of the libraries that knows which there are.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "transport/channel/back_end.h"

namespace gloo_bypass {

// All that the sources have, those that this build lacks too. Any thread; lives until the process has ended.
std::span<const BackEnd> backEnds();

// By its name, matched exactly; null if there is none.
const BackEnd* findBackEnd(std::string_view name);

// One line for a back-end that this build lacks: what was missing and what to do. Empty if it is in this build.
std::string whyMissing(const BackEnd& backEnd);

}  // namespace gloo_bypass
