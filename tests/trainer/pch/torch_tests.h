// Precompiled for the tests that need libtorch; see trainer/pch/torch.h.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
