#include "tools/fabric/core/description_source.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>

#include "transport/base/printable.h"

namespace gloo_bypass::fabric {
namespace {

// Keys nest as deep as a line has dots, and a table of tables is destroyed by recursion.
constexpr std::size_t kMaxLineBytes = 4096;
constexpr std::size_t kMaxFlags = 10'000;

enum class SectionShape : std::uint8_t { kValue, kTable, kList };
struct Section {
  std::string_view name;
  SectionShape shape;
};
constexpr Section kSections[] = {{"seed", SectionShape::kValue},    {"ranks", SectionShape::kValue},
                                 {"network", SectionShape::kValue}, {"defaults", SectionShape::kTable},
                                 {"ring", SectionShape::kTable},    {"host", SectionShape::kList},
                                 {"edge", SectionShape::kList},     {"event", SectionShape::kList}};

const Section* findSection(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kSections), std::end(kSections),
                                         [&](const Section& section) { return section.name == name; });
  return found == std::end(kSections) ? nullptr : found;
}

std::string placeOf(const std::string& file, const toml::source_position& position) {
  return fmt::format("{}:{}:{}", excerpt(file), position.line, position.column);
}

class TomlReader {
 public:
  TomlReader(const std::string& file, std::vector<Entry>& entries) : file_(file), entries_(entries) {}

  Status read(const toml::table& root) {
    Entry top{"", false, excerpt(file_), {}};
    for (const auto& [key, node] : inOrder(root)) {
      const Section* const section = findSection(key->str());
      if (section == nullptr) {
        return faultAt(placeOf(file_, key->source().begin), fmt::format("unknown key \"{}\"; a description has {}",
                                                                        excerpt(key->str()), joined(sectionNames())));
      }
      if (section->shape == SectionShape::kValue) {
        if (Status status = readField(top, *key, *node); !status) return status;
      } else if (section->shape == SectionShape::kTable) {
        if (Status status = readTable(*key, *node); !status) return status;
      } else if (Status status = readList(*key, *node); !status) {
        return status;
      }
    }
    entries_.insert(entries_.begin(), std::move(top));
    return {};
  }

 private:
  using KeyAndNode = std::pair<const toml::key*, const toml::node*>;

  // toml++ keeps keys sorted by name; faults are reported in the order of the file.
  static std::vector<KeyAndNode> inOrder(const toml::table& table) {
    std::vector<KeyAndNode> list;
    for (const auto& [key, node] : table) list.emplace_back(&key, &node);
    const auto position = [](const KeyAndNode& each) {
      const toml::source_position& begin = each.first->source().begin;
      return std::pair(begin.line, begin.column);
    };
    std::stable_sort(list.begin(), list.end(),
                     [&](const KeyAndNode& a, const KeyAndNode& b) { return position(a) < position(b); });
    return list;
  }

  Status readTable(const toml::key& key, const toml::node& node) {
    if (node.as_table() == nullptr) {
      return faultAt(placeOf(file_, key.source().begin), fmt::format("{0} is a table: write [{0}]", key.str()));
    }
    return readEntry(std::string(key.str()), *node.as_table(), placeOf(file_, key.source().begin));
  }

  Status readList(const toml::key& key, const toml::node& node) {
    const toml::array* const list = node.as_array();
    const auto refuse = [&](const toml::source_position& position) {
      return faultAt(placeOf(file_, position), fmt::format("{0} is a list of tables: write [[{0}]]", key.str()));
    };
    if (list == nullptr) return refuse(key.source().begin);
    for (const toml::node& each : *list) {
      if (each.as_table() == nullptr) return refuse(each.source().begin);
      if (Status status = readEntry(std::string(key.str()), *each.as_table(), placeOf(file_, each.source().begin));
          !status) {
        return status;
      }
    }
    return {};
  }

  Status readEntry(std::string section, const toml::table& table, std::string place) {
    Entry entry{std::move(section), false, std::move(place), {}};
    for (const auto& [key, node] : inOrder(table)) {
      if (Status status = readField(entry, *key, *node); !status) return status;
    }
    entries_.push_back(std::move(entry));
    return {};
  }

  Status readField(Entry& entry, const toml::key& key, const toml::node& node) {
    Field field{entry.section, std::string(key.str()), "", false, placeOf(file_, key.source().begin)};
    if (const auto* text = node.as_string()) {
      field.value = text->get();
      field.quoted = true;
    } else if (const auto* integer = node.as_integer()) {
      field.value = std::to_string(integer->get());
    } else if (const auto* real = node.as_floating_point()) {
      field.value = fmt::format("{}", real->get());
    } else if (const auto* boolean = node.as_boolean()) {
      field.value = boolean->get() ? "true" : "false";
    } else {
      return faultAt(field.place, fmt::format("{}{} has a list, a table or a date; give one plain value",
                                              entry.section.empty() ? "" : entry.section + ".", excerpt(field.key)));
    }
    entry.fields.push_back(std::move(field));
    return {};
  }

  const std::string& file_;
  std::vector<Entry>& entries_;
};

Status checkLines(const DescriptionInput& input) {
  if (input.text.size() > DescriptionInput::kMaxBytes) {
    return faultAt(excerpt(input.name), fmt::format("{} bytes are too many for a description; at most {} are allowed",
                                                    input.text.size(), DescriptionInput::kMaxBytes));
  }
  std::size_t line = 1;
  for (std::size_t begin = 0; begin < input.text.size(); ++line) {
    const std::size_t end = std::min(input.text.find('\n', begin), input.text.size());
    if (end - begin > kMaxLineBytes) {
      return faultAt(fmt::format("{}:{}:1", excerpt(input.name), line),
                     fmt::format("a line of {} bytes; at most {} are allowed", end - begin, kMaxLineBytes));
    }
    begin = end + 1;
  }
  return {};
}

Status readToml(const DescriptionInput& input, std::vector<Entry>& entries) {
  if (Status status = checkLines(input); !status) return status;
  try {
    const toml::table root = toml::parse(std::string_view(input.text));
    return TomlReader(input.name, entries).read(root);
  } catch (const toml::parse_error& error) {
    return faultAt(placeOf(input.name, error.source().begin), fmt::format("no TOML: {}", error.description()));
  }
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

Status readFlag(const DescriptionFlag& flag, std::vector<Entry>& entries) {
  const std::string place = fmt::format("--{} {}", excerpt(flag.section), excerpt(flag.value));
  const Section* const section = findSection(flag.section);
  if (section == nullptr) {
    return faultAt(place, fmt::format("unknown flag; a description has {}", joined(sectionNames())));
  }
  if (section->shape == SectionShape::kValue) {
    entries.push_back({"", true, place, {{"", flag.section, std::string(trimmed(flag.value)), true, place}}});
    return {};
  }
  Entry entry{flag.section, true, place, {}};
  std::string_view rest = flag.value;
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    more = comma != std::string_view::npos;
    const std::string_view part = trimmed(rest.substr(0, comma));
    if (more) rest.remove_prefix(comma + 1);
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      return faultAt(place,
                     fmt::format("\"{}\" is no KEY=VALUE; give them with commas between, such as delay=300ms,loss=1%",
                                 excerpt(part)));
    }
    const std::string key(trimmed(part.substr(0, equals)));
    if (entry.find(key) != nullptr) return faultAt(place, fmt::format("{} is given twice", excerpt(key)));
    entry.fields.push_back({flag.section, key, std::string(trimmed(part.substr(equals + 1))), true, place});
  }
  entries.push_back(std::move(entry));
  return {};
}

}  // namespace

const Field* Entry::find(std::string_view key) const {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return field.key == key; });
  return found == fields.end() ? nullptr : &*found;
}

Result<std::vector<Entry>> readEntries(const DescriptionInput& input) {
  std::vector<Entry> entries;
  if (Status status = readToml(input, entries); !status) return status.error();
  if (input.flags.size() > kMaxFlags) {
    return faultAt("flags", fmt::format("{} are too many; at most {} are allowed", input.flags.size(), kMaxFlags));
  }
  for (const DescriptionFlag& flag : input.flags) {
    if (Status status = readFlag(flag, entries); !status) return status.error();
  }
  return entries;
}

const std::vector<std::string>& sectionNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Section& each : kSections) list.emplace_back(each.name);
    return list;
  }();
  return names;
}

std::string excerpt(std::string_view text) {
  constexpr std::size_t kMostBytes = 60;
  return printable(text.substr(0, kMostBytes)) + (text.size() > kMostBytes ? "..." : "");
}

std::string joined(const std::vector<std::string>& names) { return gloo_bypass::joined(names); }

Error faultAt(const std::string& place, const std::string& message) {
  std::string line = place.empty() ? message : place + ": " + message;
  // The parser quotes what it found, line ends included.
  std::replace(line.begin(), line.end(), '\n', ' ');
  return Error{ErrorScope::kDevice, ErrorCode::kConfiguration, printable(line)};
}

Error faultIn(const Field& field, const std::string& message) {
  const std::string quote = field.quoted ? "\"" : "";
  return faultAt(field.place, fmt::format("{}{}{} = {}{}{}: {}", field.section, field.section.empty() ? "" : ".",
                                          excerpt(field.key), quote, excerpt(field.value), quote, message));
}

}  // namespace gloo_bypass::fabric
