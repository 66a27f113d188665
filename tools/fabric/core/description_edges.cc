#include "tools/fabric/core/description_edges.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tools/fabric/core/quantity.h"
#include "tools/fabric/core/schedule.h"

namespace gloo_bypass::fabric {
namespace {

constexpr std::uint64_t kDefaultQueueBytes = std::uint64_t{1} << 20;
constexpr std::size_t kMaxEdgeEntries = 20'000;
constexpr double kNanosecondsPerMetre = 5;  // light in fibre: 5 us/km
constexpr double kMaxRingMetres = 1e9;
constexpr Duration kMaxTime = std::chrono::hours(24 * 7);
constexpr Duration kLeastLasting = std::chrono::nanoseconds(1);

struct Selection {
  EdgeSelection edges;
  int exactness = 0;
};

struct EdgeEntry {
  Selection selection;
  EdgeChange change;
};

class EdgeReader {
 public:
  EdgeReader(const std::vector<Entry>& entries, Description& description)
      : entries_(entries), description_(description), hosts_(description.hosts.size()) {}

  Status read() {
    Status status = readDefaults();
    if (status) status = readRing();
    if (status) status = readEntries();
    if (status) status = readEvents();
    return status;
  }

 private:
  // --- what weighs least ---

  Status readDefaults() {
    EdgeModel model;
    model.queueBytes = kDefaultQueueBytes;
    for (const Entry& entry : entries_) {
      if (entry.section != "defaults") continue;
      EdgeChange change;
      if (Status status = readSettings(entry, {}, change); !status) return status;
      change.applyTo(model);
      if (Status status = checkReordering(entry, model); !status) return status;
    }
    description_.edges.assign(hosts_ * hosts_, model);
    return {};
  }

  Status readRing() {
    for (const Entry& entry : entries_) {
      if (entry.section != "ring") continue;
      for (const Field& field : entry.fields) {
        if (field.key != "length") return faultIn(field, "unknown key; ring has length");
      }
      const Field* const length = entry.find("length");
      if (length == nullptr) return faultAt(entry.place, "ring: has no length; give length = \"4800km\"");
      const Result<double> metres = parseMetres(length->value, 1, kMaxRingMetres);
      if (!metres) return faultIn(*length, metres.error().message);
      ringMetres_ = metres.value();
    }
    if (ringMetres_ > 0) addArcs();
    return {};
  }

  // Sites stand on the circle at equal distances, in the order in which hosts name them; a host without a site is one
  // alone.
  void addArcs() {
    std::vector<std::string> sites;
    std::vector<std::size_t> siteOf;
    for (const HostDescription& host : description_.hosts) {
      const auto found = host.site.empty() ? sites.end() : std::find(sites.begin(), sites.end(), host.site);
      siteOf.push_back(static_cast<std::size_t>(found - sites.begin()));
      if (found == sites.end()) sites.push_back(host.site);
    }
    for (std::size_t from = 0; from < hosts_; ++from) {
      for (std::size_t to = 0; to < hosts_; ++to) {
        const std::size_t apart = siteOf[from] > siteOf[to] ? siteOf[from] - siteOf[to] : siteOf[to] - siteOf[from];
        const double arcs = static_cast<double>(std::min(apart, sites.size() - apart));
        const double nanoseconds = arcs * ringMetres_ / static_cast<double>(sites.size()) * kNanosecondsPerMetre;
        description_.edges[from * hosts_ + to].delay += Duration(std::llround(nanoseconds));
      }
    }
  }

  // --- [[edge]] ---

  Status readEntries() {
    std::vector<EdgeEntry> list;
    for (const Entry& entry : entries_) {
      if (entry.section != "edge") continue;
      if (list.size() == kMaxEdgeEntries)
        return faultAt(entry.place, fmt::format("edge: at most {} are allowed", kMaxEdgeEntries));
      EdgeEntry edge;
      if (Status status = readSettings(entry, {"from", "to", "both"}, edge.change); !status) return status;
      if (Status status = readSelection(entry, edge.selection); !status) return status;
      if (edge.change.empty()) {
        return faultAt(entry.place, fmt::format("edge: changes nothing; give some of {}", joined(edgeSettingNames())));
      }
      list.push_back(std::move(edge));
    }
    std::stable_sort(list.begin(), list.end(), [](const EdgeEntry& a, const EdgeEntry& b) {
      return a.selection.exactness < b.selection.exactness;
    });
    for (const EdgeEntry& entry : list) {
      forEachEdge(entry.selection.edges, [&](EdgeId id) {
        entry.change.applyTo(description_.edges[id.from * hosts_ + id.to]);
        return true;
      });
    }
    return checkEdges();
  }

  Status checkEdges() const {
    for (std::size_t from = 0; from < hosts_; ++from) {
      for (std::size_t to = 0; to < hosts_; ++to) {
        const EdgeModel& model = description_.edge(from, to);
        if (from == to || model.reordering == 0 || model.reorderDelay > Duration{0}) continue;
        return faultAt(
            entries_.front().place,
            fmt::format(
                "edge {}: reordering = {} has no effect without reorder_delay; give how late such frames may be",
                description_.edgeName(from, to), percentageText(model.reordering)));
      }
    }
    return {};
  }

  static Status checkReordering(const Entry& entry, const EdgeModel& model) {
    const Field* const field = entry.find("reordering");
    if (field == nullptr || model.reordering == 0 || model.reorderDelay > Duration{0}) return {};
    return faultIn(*field, "has no effect without reorder_delay; give how late such frames may be");
  }

  // Into `change`; `others` are the entry's keys that set nothing of an edge.
  static Status readSettings(const Entry& entry, std::vector<std::string> others, EdgeChange& change) {
    for (const Field& field : entry.fields) {
      if (std::find(others.begin(), others.end(), field.key) != others.end()) continue;
      if (!isEdgeSetting(field.key)) {
        others.insert(others.end(), edgeSettingNames().begin(), edgeSettingNames().end());
        return faultIn(field, fmt::format("unknown key; {} has {}", entry.section, joined(others)));
      }
      if (Status status = setEdge(change, field.key, field.value); !status)
        return faultIn(field, status.error().message);
    }
    return {};
  }

  // --- which edges ---

  Status readSelection(const Entry& entry, Selection& selection) const {
    for (const char* const key : {"from", "to"}) {
      const Field* const field = entry.find(key);
      if (field == nullptr) {
        return faultAt(entry.place,
                       fmt::format("{}: has no {}; give a host, a rank, a site or \"*\"", entry.section, key));
      }
      auto& chosen = field->key == "from" ? selection.edges.from : selection.edges.to;
      if (Status status = select(*field, chosen, selection.exactness); !status) return status;
    }
    if (const Field* const both = entry.find("both")) {
      if (both->value != "true" && both->value != "false") return faultIn(*both, "is neither true nor false");
      selection.edges.both = both->value == "true";
    }
    bool any = false;
    forEachEdge(selection.edges, [&](EdgeId) { return !(any = true); });
    if (any) return {};
    return faultIn(*entry.find("to"), "selects no edge: there is none from a host to itself");
  }

  Status select(const Field& field, std::bitset<kMaxHosts>& chosen, int& exactness) const {
    const std::string& text = field.value;
    const std::vector<HostDescription>& hosts = description_.hosts;
    if (text == "*") {
      for (std::size_t i = 0; i < hosts_; ++i) chosen.set(i);
      return {};
    }
    const std::optional<std::size_t> host = description_.findHost(text);
    const bool isName = host && hosts[*host].name == text;
    for (std::size_t i = 0; i < hosts_ && !isName; ++i) {
      if (!text.empty() && hosts[i].site == text) chosen.set(i);
    }
    if (chosen.any()) {
      exactness += 1;
      return {};
    }
    if (host) {
      chosen.set(*host);
      exactness += 2;
      return {};
    }
    return faultIn(field, fmt::format("is no host, rank or site; {}", known()));
  }

  std::string known() const {
    constexpr std::size_t kMostNames = 12;
    std::vector<std::string> names, sites;
    for (const HostDescription& host : description_.hosts) {
      names.push_back(host.name);
      const bool isNew = !host.site.empty() && std::find(sites.begin(), sites.end(), host.site) == sites.end();
      if (isNew) sites.push_back(host.site);
    }
    const auto list = [](std::vector<std::string>& all) {
      const bool cut = all.size() > kMostNames;
      if (cut) all.resize(kMostNames);
      return joined(all) + (cut ? ", ..." : "");
    };
    std::string text = fmt::format("hosts are {} (ranks 0 to {})", list(names), hosts_ - 1);
    if (!sites.empty()) text += ", sites " + list(sites);
    return text + ", and \"*\" is all";
  }

  // --- [[event]] ---

  struct Event {
    ScheduledChange change;
    const Entry* entry;
  };

  Status readEvents() {
    std::vector<Event> events;
    for (const Entry& entry : entries_) {
      if (entry.section != "event") continue;
      if (events.size() == kMaxEvents)
        return faultAt(entry.place, fmt::format("event: at most {} are allowed", kMaxEvents));
      Event event{{}, &entry};
      if (Status status = readEvent(entry, event.change); !status) return status;
      events.push_back(std::move(event));
    }
    std::stable_sort(events.begin(), events.end(),
                     [](const Event& a, const Event& b) { return a.change.at < b.change.at; });
    for (const Event& event : events) {
      description_.events.push_back(event.change);
      if (Status status = checkEffect(*event.entry); !status) return status;
    }
    return {};
  }

  Status readEvent(const Entry& entry, ScheduledChange& event) const {
    const Field* const at = entry.find("at");
    const Field* const down = entry.find("down");
    const Field* const lasts = entry.find("for");
    if (at == nullptr)
      return faultAt(entry.place, "event: has no time; give at = \"5s\", counted from the fabric's start");
    if (Status status = readTime(*at, Duration{0}, event.at); !status) return status;
    if (Status status = readSettings(entry, {"at", "from", "to", "both", "for", "down"}, event.change); !status)
      return status;
    if (down != nullptr && (lasts != nullptr || !event.change.empty())) {
      return faultIn(
          *down, "stands beside other settings, which have no effect on a link that is down; make two events of them");
    }
    if (down != nullptr) event.change.up = false;
    const Field* const span = down != nullptr ? down : lasts;
    if (span != nullptr && !(span == down && down->value == "forever")) {
      Duration length{0};
      Status status = readTime(*span, kLeastLasting, length);
      if (!status && span == down) return faultAt("", status.error().message + ", or \"forever\"");
      if (!status) return status;
      event.lasts = length;
    }
    if (event.change.empty()) {
      return faultAt(entry.place, fmt::format("event: has no effect: it changes nothing; give down, or some of {}",
                                              joined(edgeSettingNames())));
    }
    Selection selection;
    if (Status status = readSelection(entry, selection); !status) return status;
    event.edges = selection.edges;
    return {};
  }

  static Status readTime(const Field& field, Duration least, Duration& time) {
    const Result<Duration> parsed = parseDuration(field.value, least, kMaxTime);
    if (!parsed) return faultIn(field, parsed.error().message);
    time = parsed.value();
    return {};
  }

  // Of the last event in the list, with those before it in force: some edge must be another one for it.
  Status checkEffect(const Entry& entry) const {
    const std::vector<ScheduledChange>& events = description_.events;
    const ScheduledChange& event = events.back();
    const std::span<const ScheduledChange> before(events.data(), events.size() - 1);
    bool effect = false;
    std::string without;  // an edge that would have reordering without reorder_delay
    std::string first;    // what one of the edges does already
    forEachEdge(event.edges, [&](EdgeId id) {
      const EdgeModel old = modelAt(description_.edge(id.from, id.to), before, id, event.at);
      EdgeModel changed = old;
      event.change.applyTo(changed);
      effect = changed != old;
      if (changed.reordering > 0 && changed.reorderDelay == Duration{0})
        without = description_.edgeName(id.from, id.to);
      if (first.empty()) first = fmt::format("{}: {}", description_.edgeName(id.from, id.to), describe(old));
      return !effect && without.empty();
    });
    if (!without.empty()) {
      return faultAt(
          entry.place,
          fmt::format("event: reordering has no effect without reorder_delay; edge {} has none then", without));
    }
    if (effect) return {};
    return faultAt(entry.place, fmt::format("event: has no effect: at {} every edge it selects is already so ({})",
                                            durationText(event.at), first));
  }

  // Until `visit` returns false. Rows without any are skipped: most selections are of few edges.
  template <typename Visit>
  void forEachEdge(const EdgeSelection& selection, const Visit& visit) const {
    for (std::size_t from = 0; from < hosts_; ++from) {
      if (!selection.mayBegin(from)) continue;
      for (std::size_t to = 0; to < hosts_; ++to) {
        if (selection.contains({from, to}) && !visit(EdgeId{from, to})) return;
      }
    }
  }

  const std::vector<Entry>& entries_;
  Description& description_;
  const std::size_t hosts_;
  double ringMetres_ = 0;
};

}  // namespace

Status readEdges(const std::vector<Entry>& entries, Description& description) {
  return EdgeReader(entries, description).read();
}

}  // namespace gloo_bypass::fabric
