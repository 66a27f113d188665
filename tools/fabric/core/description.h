// An emulated fabric in words: its hosts, the ports they are attached to, what each directed edge between two of them
// does to frames, and when that changes. From a TOML file and from flags with the same keys; README.md of this folder
// lists them, examples/fabric/ has files. Pure: description_file.h reads the file.
//
// Every pair of different hosts is joined by two directed edges. What decides about a setting of an edge, weakest
// first:
//   1. [defaults]
//   2. [ring]: the delay of its arc, added to that of [defaults]
//   3. [[edge]] entries that select it, from the least to the most exact. A selector is a host's name or rank (2
//   points),
//      a site (1) or "*" (0); an entry has the sum of its `from` and `to`. Of equals the later one decides.
//   Flags come after the file: --defaults keys replace the file's, --edge and --event entries stand behind its own.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/fabric/core/edge_emulator.h"
#include "tools/fabric/core/edge_settings.h"
#include "transport/base/status.h"

namespace gloo_bypass::fabric {

enum class PortKind : std::uint8_t {
  kUnspecified,  // the description leaves it to whoever starts the fabric
  kMemif,        // a memif socket; the fabric is its server
  kInterface,    // an interface of the kernel that exists, through af_packet
  kTap,          // a tap interface that the fabric makes
};

// The key of a description that gives a host such a port; "" for kUnspecified.
inline const char* nameOf(PortKind kind) {
  return std::array{"", "memif", "interface", "tap"}[static_cast<std::size_t>(kind)];
}

struct PortDescription {
  PortKind kind = PortKind::kUnspecified;
  std::string name;  // the socket's absolute path, or the interface's name
  std::string
      networkNamespace;  // kUnspecified, kTap: where the host's end belongs; empty: not said. It is no other host's
};

struct HostDescription {
  std::string name;
  std::string site;                                // empty: none
  std::uint32_t ipv4 = 0;                          // host byte order
  unsigned prefixLength = 0;                       // the same network for all hosts
  std::optional<std::array<std::uint8_t, 6>> mac;  // none: learnt, or chosen by whoever makes the port
  PortDescription port;
};

// Hosts are named by their index, which is their rank.
struct EdgeId {
  std::size_t from = 0, to = 0;
  friend bool operator==(const EdgeId&, const EdgeId&) = default;
};

inline constexpr std::size_t kMaxHosts = 256;
inline constexpr std::size_t kMaxEvents = 1000;

// The edges from some hosts to some.
struct EdgeSelection {
  std::bitset<kMaxHosts> from, to;
  bool both = false;  // and those back

  // Whether any edge may begin at this host: most selections are of few.
  bool mayBegin(std::size_t host) const { return from[host] || (both && to[host]); }
  bool contains(EdgeId edge) const {
    return edge.from != edge.to && ((from[edge.from] && to[edge.to]) || (both && from[edge.to] && to[edge.from]));
  }
};

struct ScheduledChange {
  Duration at{0};                 // since the fabric's start
  std::optional<Duration> lasts;  // none: for good
  EdgeChange change;
  EdgeSelection edges;  // at least one
};

struct Description {
  std::uint64_t seed = 1;
  std::vector<HostDescription> hosts;   // in the order of ranks, 2 to kMaxHosts
  std::vector<EdgeModel> edges;         // hosts * hosts, at the start; those of a host to itself mean nothing
  std::vector<ScheduledChange> events;  // in the order of time; of one time, in the order given

  const EdgeModel& edge(std::size_t from, std::size_t to) const { return edges[from * hosts.size() + to]; }
  // "r0->r1"
  std::string edgeName(std::size_t from, std::size_t to) const { return hosts[from].name + "->" + hosts[to].name; }
  // A host's name, or its rank in digits; none: no such host.
  std::optional<std::size_t> findHost(std::string_view nameOrRank) const;
  // An emulator with the edge's model and a random stream of its own, which depends on the seed and the two names
  // alone.
  EdgeEmulator makeEdge(std::size_t from, std::size_t to) const {
    return EdgeEmulator(edge(from, to), seedOf(seed, edgeName(from, to)));
  }
};

// A flag of a command line, without dashes: section "edge", value "from=r3,to=r2,delay=300ms". The sections are those
// of the file, `sectionNames()`; "seed", "ranks" and "network" have a plain value. A host of the file is changed by
// "host", "name=r0,memif=/run/r0.sock"; an unknown name adds a host.
struct DescriptionFlag {
  std::string section;
  std::string value;
};

struct DescriptionInput {
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

  std::string text;  // TOML; may be empty where flags say it all
  std::string name;  // the file's, for messages
  std::vector<DescriptionFlag> flags;
};

// Errors have scope kDevice and code kConfiguration; the message is one line "FILE:LINE:COLUMN: KEY = VALUE: what is
// wrong and what is allowed" (for flags "--SECTION VALUE: ..."). The first fault found is reported.
Result<Description> parseDescription(const DescriptionInput& input);

// "seed", "ranks", "network", "defaults", "ring", "host", "edge", "event"
const std::vector<std::string>& sectionNames();

// "10.32.0.2"
std::string ipv4Text(std::uint32_t address);

}  // namespace gloo_bypass::fabric
