// Fills the table of verbs from a shared library.
#pragma once

#include <string>

#include "transport/base/status.h"
#include "transport/verbs/verbs_api.h"

namespace gloo_bypass::verbs {

// Loads `library` (a name or a path) for the rest of the process's life and looks up every function of the table, in
// the version of <infiniband/verbs.h>. Calls none. Errors: those of systemVerbs().
Result<VerbsApi> loadVerbs(const std::string& library);

}  // namespace gloo_bypass::verbs
