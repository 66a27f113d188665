// Precompiled for what needs libtorch: parsing ATen takes most of the time that such a source takes to compile.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
