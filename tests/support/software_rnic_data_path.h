// Private to software_rnic: the functions behind the inline ones of <infiniband/verbs.h>.
#pragma once

#include <infiniband/verbs.h>

namespace gloo_bypass::test {

void fillDataPath(ibv_context_ops& operations);

}  // namespace gloo_bypass::test
