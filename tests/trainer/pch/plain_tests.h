// Precompiled for the tests of the trainer that need no libtorch; see transport/pch/standard.h.
#include "tests/support/pch/gtest.h"

#include <nlohmann/json.hpp>
