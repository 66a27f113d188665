#include "collectives/link.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "transport/base/printable.h"
#include "transport/process/back_ends.h"
#include "transport/process/environment.h"

namespace gloo_bypass::collectives {

namespace {

constexpr std::size_t kMostBytes = 32 * 1024;  // of a table, which rank 0 publishes

Error wrongSetting(const std::string& setting, const std::string& why) {
  return {ErrorScope::kDevice, ErrorCode::kConfiguration, fmt::format("{}: {}", printable(setting), why)};
}

Result<ChoiceTable> tableIn(const std::string& path) {
  const std::string setting = "GLOO_BYPASS_CHOICES=" + path;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  if (!file) return wrongSetting(setting, std::strerror(errno));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMostBytes) return wrongSetting(setting, fmt::format("a table has at most {} bytes", kMostBytes));
  auto table = ChoiceTable::parse(text);
  if (!table) return wrongSetting(setting, table.error().message);
  return table;
}

Result<ChoiceTable> choicesOf(const TransportConfig& config) {
  ChoiceTable choices;
  if (!config.choices.empty()) {
    auto table = tableIn(config.choices);
    if (!table) return table;
    choices = std::move(table).value();
  }
  if (Status status = choices.prefer(std::string_view(config.algorithm)); !status.ok()) {
    return wrongSetting("GLOO_BYPASS_ALGORITHM=" + config.algorithm, status.error().message);
  }
  if (config.sumsInOrder) {
    ChoiceTable named;
    (void)named.prefer(std::string_view(config.algorithm));
    if (Status status = named.addsInOrderOfRanks(); !status.ok()) {
      return wrongSetting("GLOO_BYPASS_SUM_ORDER=ranks with GLOO_BYPASS_ALGORITHM=" + config.algorithm,
                          status.error().message);
    }
    choices.keepOrderOfRanks();
  }
  if (choices.text().size() > kMostBytes) {
    return wrongSetting("GLOO_BYPASS_CHOICES=" + config.choices, "the table is too long: leave the reasons out");
  }
  return choices;
}

}  // namespace

Result<Link> Link::named(const std::string& transport) {
  Link link{.transport = transport.empty() ? "DPDK" : transport};
  const BackEnd* backEnd = findBackEnd(link.transport);
  if (backEnd == nullptr) {
    return Error{ErrorScope::kDevice, ErrorCode::kConfiguration,
                 fmt::format("GLOO_DEVICE_TRANSPORT={} has no collectives of gloo-bypass: use DPDK, UDP or RDMA",
                             printable(link.transport))};
  }
  const auto config = configurationFromEnvironment();
  if (!config) return config.error();
  const LinkMode mode = config.value().link;
  link.hasMemory = link.transport == "DPDK" && (mode == LinkMode::kAuto || mode == LinkMode::kMemif);
  link.threads = config.value().threads;
  auto choices = choicesOf(config.value());
  if (!choices) return choices.error();
  link.choices = std::move(choices).value();
  return link;
}

}  // namespace gloo_bypass::collectives
