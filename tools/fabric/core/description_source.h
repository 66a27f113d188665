// What a description says, before it is asked whether it makes sense: entries of keys and texts, each with its place.
// This is the only part that knows TOML.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/fabric/core/description.h"
#include "transport/base/joined.h"
#include "transport/base/status.h"

namespace gloo_bypass::fabric {

struct Field {
  std::string section;  // of its entry
  std::string key;
  std::string value;    // numbers and booleans as text
  bool quoted = false;  // in TOML: a string
  std::string place;    // "four.toml:12:9", "--edge from=r0,..."
};

struct Entry {
  std::string section;  // "" holds "seed", "ranks" and "network"
  bool fromFlag = false;
  std::string place;
  std::vector<Field> fields;  // in their order; no key twice

  const Field* find(std::string_view key) const;
};

// The file's plain values as one entry, which is always there; its other entries in their order; then those of flags.
// Sections are known ones; keys may be anything.
Result<std::vector<Entry>> readEntries(const DescriptionInput& input);

// Names of hosts, sites and interfaces consist of these.
inline constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

// "PLACE: MESSAGE", one line whatever bytes the input had.
Error faultAt(const std::string& place, const std::string& message);
// "PLACE: SECTION.KEY = VALUE: MESSAGE"
Error faultIn(const Field& field, const std::string& message);
// As printable(), cut at 60 bytes.
std::string excerpt(std::string_view text);

}  // namespace gloo_bypass::fabric
