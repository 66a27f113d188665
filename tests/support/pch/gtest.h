// Precompiled for test programs of several sources; see transport/pch/standard.h.
#include "transport/pch/standard.h"

#include <gtest/gtest.h>
