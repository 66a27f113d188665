#include "tools/fabric/core/description_hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tools/fabric/core/network_address.h"
#include "transport/base/printable.h"
#include "transport/base/whole_number.h"

namespace gloo_bypass::fabric {
namespace {

constexpr std::string_view kDefaultNetwork = "10.77.0.0/24";
constexpr std::uint32_t kFirstHostAddress = 2;  // .1 is left to a bridge or gateway
constexpr std::size_t kMaxNameBytes = 32;
constexpr std::size_t kMaxInterfaceBytes = 15;    // the kernel's IFNAMSIZ - 1
constexpr std::size_t kMaxSocketPathBytes = 107;  // sockaddr_un
constexpr std::size_t kMaxNamespaceBytes = 200;   // a file's name, under 255 with what tools add

const std::vector<std::string> kHostKeys{"name", "site", "ipv4", "mac", "memif", "interface", "tap", "namespace"};

enum class Origin : std::uint8_t { kRanks, kFile, kFlag };

struct Draft {
  HostDescription host;
  Origin origin = Origin::kRanks;
  bool hasAddress = false;
  std::string place;                          // where it is first named
  std::map<std::string, std::string> places;  // of each key that was given
};

bool isName(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameBytes &&
         text.find_first_not_of(kNameCharacters) == std::string_view::npos;
}

bool isFileName(std::string_view text, std::size_t mostBytes) {
  return !text.empty() && text.size() <= mostBytes && text != "." && text != ".." &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f && c != '/' && c != ':'; });
}

class HostReader {
 public:
  explicit HostReader(const std::vector<Entry>& entries) : entries_(entries) {}

  Result<std::vector<HostDescription>> read() {
    if (Status status = readNetwork(); !status) return status.error();
    if (Status status = makeRanks(); !status) return status.error();
    for (const Entry& entry : entries_) {
      if (entry.section != "host") continue;
      if (Status status = readHost(entry); !status) return status.error();
    }
    if (drafts_.size() < 2) {
      return faultAt(entries_.front().place,
                     fmt::format("{} host{}; a fabric has at least 2: give [[host]] entries, or ranks = 4",
                                 drafts_.size(), drafts_.size() == 1 ? "" : "s"));
    }
    if (Status status = giveAddresses(); !status) return status.error();
    if (Status status = checkTwice(); !status) return status.error();
    std::vector<HostDescription> hosts;
    for (Draft& draft : drafts_) hosts.push_back(std::move(draft.host));
    return hosts;
  }

 private:
  // The last one wins: flags come after the file.
  const Field* top(std::string_view key) const {
    const Field* found = nullptr;
    for (const Entry& entry : entries_) {
      const Field* const field = entry.section.empty() ? entry.find(key) : nullptr;
      if (field != nullptr) found = field;
    }
    return found;
  }

  Status readNetwork() {
    const Field* const field = top("network");
    network_ = *parseNetwork(kDefaultNetwork);
    if (field == nullptr) return {};
    const std::optional<Network> network = parseNetwork(field->value);
    if (!network || network->first() != network->address) {
      return faultIn(*field,
                     "is no IPv4 network; give its first address and a prefix from 8 to 30, such as 10.32.0.0/24");
    }
    network_ = *network;
    networkIsGiven_ = true;
    return {};
  }

  Status makeRanks() {
    const Field* const field = top("ranks");
    if (field == nullptr) return {};
    const auto count = wholeNumber(field->value, std::size_t{2}, kMaxHosts);
    if (!count) return faultIn(*field, fmt::format("is no number of hosts; give 2 to {}", kMaxHosts));
    for (std::size_t i = 0; i < *count; ++i) {
      Draft draft;
      draft.host.name = fmt::format("r{}", i);
      draft.place = field->place;
      drafts_.push_back(std::move(draft));
    }
    return {};
  }

  static Status checkName(const Field& field) {
    if (isName(field.value)) return {};
    return faultIn(field,
                   fmt::format("is no name; use 1 to {} letters, digits, \"-\", \"_\" and \".\"", kMaxNameBytes));
  }

  Status readHost(const Entry& entry) {
    const Field* const name = entry.find("name");
    if (name == nullptr) return faultAt(entry.place, "host: has no name; give name = \"...\"");
    if (Status status = checkName(*name); !status) return status;
    const Origin origin = entry.fromFlag ? Origin::kFlag : Origin::kFile;
    auto found = std::find_if(drafts_.begin(), drafts_.end(),
                              [&](const Draft& draft) { return draft.host.name == name->value; });
    if (found == drafts_.end()) {
      if (drafts_.size() == kMaxHosts)
        return faultIn(*name, fmt::format("is one host too many; at most {} are allowed", kMaxHosts));
      found = drafts_.emplace(drafts_.end());
      found->host.name = name->value;
      found->place = name->place;
    } else if (found->origin == origin) {
      return faultIn(*name, fmt::format("a host of that name is already at {}; names differ", found->place));
    }
    found->origin = origin;
    // A flag's port replaces the file's, whatever kind each of them is.
    if (entry.find("memif") || entry.find("interface") || entry.find("tap")) {
      found->host.port.kind = PortKind::kUnspecified;
      found->host.port.name.clear();
    }
    for (const Field& field : entry.fields) {
      if (Status status = readKey(field, *found); !status) return status;
    }
    return {};
  }

  Status readKey(const Field& field, Draft& draft) {
    HostDescription& host = draft.host;
    draft.places[field.key] = field.place;
    if (field.key == "name") return {};
    if (field.key == "site") {
      host.site = field.value;
      return checkName(field);
    }
    if (field.key == "ipv4") return readAddress(field, draft);
    if (field.key == "mac") {
      host.mac = parseMac(field.value);
      if (!host.mac) {
        return faultIn(
            field, "is no address of an Ethernet device; give six bytes such as 02:00:00:00:00:01 (no group address)");
      }
      return {};
    }
    if (field.key == "namespace") {
      if (!isFileName(field.value, kMaxNamespaceBytes)) {
        return faultIn(field, "is no name of a network namespace; give it as \"ip netns list\" prints it");
      }
      host.port.networkNamespace = field.value;
      return {};
    }
    return readPort(field, host.port);
  }

  Status readAddress(const Field& field, Draft& draft) {
    const std::optional<Network> address = parseNetwork(field.value);
    if (!address) {
      return faultIn(field,
                     "is no IPv4 address with its prefix; give one such as 10.32.0.2/24 (prefixes from 8 to 30)");
    }
    if (address->address == address->first() || address->address == address->last()) {
      return faultIn(
          field, fmt::format("is the network {} itself or its broadcast address, not a host's", networkText(*address)));
    }
    draft.host.ipv4 = address->address;
    draft.host.prefixLength = address->prefixLength;
    draft.hasAddress = true;
    if (!networkIsGiven_) {  // the first address says
      network_ = {address->first(), address->prefixLength};
      networkIsGiven_ = true;
    }
    if (address->prefixLength != network_.prefixLength || !network_.contains(address->address)) {
      return faultIn(field, fmt::format("is not in {}, the network of this fabric; it switches and does not route",
                                        networkText(network_)));
    }
    return {};
  }

  Status readPort(const Field& field, PortDescription& port) {
    const bool memif = field.key == "memif";
    if (!memif && field.key != "interface" && field.key != "tap") {
      return faultIn(field, fmt::format("unknown key; host has {}", joined(kHostKeys)));
    }
    if (port.kind != PortKind::kUnspecified) {
      return faultIn(field, "is a second port of this host; give one of memif, interface and tap");
    }
    if (memif &&
        (!field.value.starts_with('/') || field.value.ends_with('/') || field.value.size() > kMaxSocketPathBytes ||
         printable(field.value) != field.value || field.value.find(',') != std::string::npos)) {
      return faultIn(field, fmt::format("is no socket's path; give an absolute one of at most {} bytes without commas",
                                        kMaxSocketPathBytes));
    }
    if (!memif && !isFileName(field.value, kMaxInterfaceBytes)) {
      return faultIn(field,
                     fmt::format("is no interface's name; the kernel's have at most {} bytes, no blank, \"/\" or \":\"",
                                 kMaxInterfaceBytes));
    }
    port.kind = memif ? PortKind::kMemif : field.key == "tap" ? PortKind::kTap : PortKind::kInterface;
    port.name = field.value;
    return {};
  }

  // A host without an address has the one of its rank, .2 for rank 0.
  Status giveAddresses() {
    for (std::size_t i = 0; i < drafts_.size(); ++i) {
      if (drafts_[i].hasAddress) continue;
      const std::uint64_t address = std::uint64_t{network_.first()} + kFirstHostAddress + i;
      if (address >= network_.last()) {
        return faultAt(drafts_[i].place,
                       fmt::format("host \"{}\" (rank {}) has no address left in {}; give a larger network",
                                   drafts_[i].host.name, i, networkText(network_)));
      }
      drafts_[i].host.ipv4 = static_cast<std::uint32_t>(address);
      drafts_[i].host.prefixLength = network_.prefixLength;
    }
    return {};
  }

  static std::string normalised(const PortDescription& port) {
    if (port.kind != PortKind::kMemif) return "interface " + port.name;  // a tap has an interface's name
    std::string path = "socket ";
    std::string_view rest = port.name;
    std::vector<std::string_view> parts;
    while (!rest.empty()) {
      const std::size_t slash = rest.find('/');
      const std::string_view part = rest.substr(0, slash);
      rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
      if (part == ".." && !parts.empty()) parts.pop_back();
      if (!part.empty() && part != "." && part != "..") parts.push_back(part);
    }
    for (const std::string_view part : parts) path += fmt::format("/{}", part);
    return path;
  }

  // What must not belong to two hosts.
  Status checkTwice() const {
    std::map<std::string, const Draft*> owners;
    const auto claim = [&](const Draft& draft, const std::string& key, const std::string& thing,
                           const std::string& why) -> Status {
      const auto [owner, isNew] = owners.try_emplace(thing, &draft);
      if (isNew) return {};
      const auto place = draft.places.find(key);
      return faultAt(place == draft.places.end() ? draft.place : place->second,
                     fmt::format("host \"{}\": {} already belongs to host \"{}\"{}", draft.host.name, thing,
                                 owner->second->host.name, why));
    };
    for (const Draft& draft : drafts_) {
      const HostDescription& host = draft.host;
      if (Status status = claim(draft, "ipv4", "address " + ipv4Text(host.ipv4), "; addresses differ"); !status)
        return status;
      if (host.mac) {
        if (Status status = claim(draft, "mac", "address " + macText(*host.mac), "; addresses differ"); !status)
          return status;
      }
      if (Status status = checkPort(draft); !status) return status;
      const std::string& space = host.port.networkNamespace;
      if (!space.empty()) {
        Status status = claim(draft, "namespace", "network namespace " + space,
                              "; the kernel would carry traffic between the two past the fabric");
        if (!status) return status;
      }
      if (host.port.kind == PortKind::kUnspecified) continue;
      Status status =
          claim(draft, nameOf(host.port.kind), normalised(host.port), "; one attached to two ports makes a cycle");
      if (!status) return status;
    }
    return checkSites();
  }

  static Status checkPort(const Draft& draft) {
    const PortDescription& port = draft.host.port;
    if (port.networkNamespace.empty() || port.kind == PortKind::kUnspecified || port.kind == PortKind::kTap) return {};
    return faultAt(
        draft.places.at("namespace"),
        fmt::format(
            "host \"{}\": a namespace has no meaning for {}; it says where a tap's, or a port the fabric chooses, has "
            "its host's end",
            draft.host.name, port.kind == PortKind::kMemif ? "a memif port" : "an interface that exists"));
  }

  // Selectors name hosts and sites alike.
  Status checkSites() const {
    std::set<std::string> names;
    for (const Draft& draft : drafts_) names.insert(draft.host.name);
    for (const Draft& draft : drafts_) {
      if (draft.host.site.empty() || !names.contains(draft.host.site)) continue;
      return faultAt(draft.places.at("site"),
                     fmt::format("host \"{}\": site \"{}\" has the name of a host; names differ", draft.host.name,
                                 draft.host.site));
    }
    return {};
  }

  const std::vector<Entry>& entries_;
  Network network_;
  bool networkIsGiven_ = false;
  std::vector<Draft> drafts_;
};

}  // namespace

Result<std::vector<HostDescription>> readHosts(const std::vector<Entry>& entries) { return HostReader(entries).read(); }

}  // namespace gloo_bypass::fabric
