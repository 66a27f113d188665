#include "tools/fabric/core/description.h"

#include <fmt/format.h>

#include "tools/fabric/core/description_edges.h"
#include "tools/fabric/core/description_hosts.h"
#include "tools/fabric/core/description_source.h"
#include "transport/base/whole_number.h"

namespace gloo_bypass::fabric {
namespace {

Status readSeed(const std::vector<Entry>& entries, std::uint64_t& seed) {
  for (const Entry& entry : entries) {
    const Field* const field = entry.section.empty() ? entry.find("seed") : nullptr;
    if (field == nullptr) continue;
    const auto given = wholeNumber<std::uint64_t>(field->value);
    if (!given) return faultIn(*field, "is no seed; give a whole number from 0 to 18446744073709551615");
    seed = *given;
  }
  return {};
}

}  // namespace

Result<Description> parseDescription(const DescriptionInput& input) {
  const Result<std::vector<Entry>> entries = readEntries(input);
  if (!entries) return entries.error();
  Description description;
  if (Status status = readSeed(entries.value(), description.seed); !status) return status.error();
  Result<std::vector<HostDescription>> hosts = readHosts(entries.value());
  if (!hosts) return hosts.error();
  description.hosts = std::move(hosts).value();
  if (Status status = readEdges(entries.value(), description); !status) return status.error();
  return description;
}

std::optional<std::size_t> Description::findHost(std::string_view nameOrRank) const {
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i].name == nameOrRank) return i;
  }
  return wholeNumber(nameOrRank, std::size_t{0}, hosts.size() - 1);
}

std::string ipv4Text(std::uint32_t address) {
  return fmt::format("{}.{}.{}.{}", address >> 24, address >> 16 & 255, address >> 8 & 255, address & 255);
}

}  // namespace gloo_bypass::fabric
