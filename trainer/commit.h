// The commit this program was built from, "unknown" outside a repository.
#pragma once

namespace gloo_bypass::trainer {
const char* commitName();
}
