// JSON as text. Names of folders and hosts may hold any bytes: invalid UTF-8 becomes U+FFFD, where dump() throws.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace gloo_bypass {

// `Json`: nlohmann::json or nlohmann::ordered_json. `indent` -1: one line.
template <typename Json>
std::string jsonText(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace gloo_bypass
