#include "tools/fabric/switch/fabric_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

#include "transport/base/seconds.h"

namespace gloo_bypass::fabric {
namespace {

double millisecondsOf(Duration duration) { return 1e3 * secondsOf(duration); }
double microsecondsOf(Duration duration) { return 1e6 * secondsOf(duration); }

Duration meanDelay(const EdgeCounters& counters) {
  return counters.accepted == 0 ? Duration::zero()
                                : counters.totalDelay / static_cast<Duration::rep>(counters.accepted);
}

}  // namespace

std::vector<EdgeId> FabricReport::usedEdges() const {
  std::vector<EdgeId> rows;
  for (std::size_t from = 0; from < switch_.hosts(); ++from) {
    for (std::size_t to = 0; to < switch_.hosts(); ++to) {
      if (from != to && switch_.edge(from, to).counters().offered > 0) rows.push_back({from, to});
    }
  }
  return rows;
}

std::string FabricReport::table(TimePoint now, std::size_t maxEdges) {
  const FrameArena& arena = switch_.arena();
  const DurationHistogram& late = switch_.lateness();
  std::string text = fmt::format(
      "{:.1f} s; {} frames under way in {:.1f} of {:.0f} MiB; late by p50 {:.0f} us, p99 {:.0f} us, max {:.0f} us\n",
      secondsOf(now - start_), switch_.framesUnderWay(), static_cast<double>(arena.usedBytes()) / 0x1p20,
      static_cast<double>(arena.limitBytes()) / 0x1p20, microsecondsOf(late.quantile(0.5)),
      microsecondsOf(late.quantile(0.99)), microsecondsOf(late.max()));
  std::vector<EdgeId> rows = usedEdges();
  const std::size_t used = rows.size();
  const double elapsed = std::max(1e-9, secondsOf(now - (last_ == TimePoint{} ? start_ : last_)));
  std::vector<double> rates(lastBytes_.size());  // of edges that are not shown too: the next table may show them
  for (const EdgeId row : rows) {
    const std::size_t edge = row.from * switch_.hosts() + row.to;
    const std::uint64_t bytes = switch_.edge(row.from, row.to).counters().deliveredBytes;
    rates[edge] = 8e-6 * static_cast<double>(bytes - std::exchange(lastBytes_[edge], bytes)) / elapsed;
  }
  if (rows.size() > maxEdges) {
    const auto more = [&](EdgeId a, EdgeId b) {
      return switch_.edge(a.from, a.to).counters().offeredBytes > switch_.edge(b.from, b.to).counters().offeredBytes;
    };
    std::stable_sort(rows.begin(), rows.end(), more);
    rows.resize(maxEdges);
  }
  text += fmt::format("{:<14} {:>9} {:>10} {:>10} {:>8} {:>8} {:>8} {:>8} {:>9} {:>10}  {}\n", "edge", "Mbit/s",
                      "frames", "MB", "lost", "queue", "down", "dup", "queue KB", "delay ms", "emulates");
  for (const EdgeId row : rows) {
    const EdgeEmulator& edge = switch_.edge(row.from, row.to);
    const EdgeCounters& c = edge.counters();
    text += fmt::format("{:<14} {:>9.2f} {:>10} {:>10.2f} {:>8} {:>8} {:>8} {:>8} {:>9.1f} {:>10.3f}  {}\n",
                        description_.edgeName(row.from, row.to), rates[row.from * switch_.hosts() + row.to],
                        c.delivered, 1e-6 * static_cast<double>(c.deliveredBytes), c.lostRandomly + c.lostInBurst,
                        c.lostInQueue, c.lostWhileDown, c.duplicated, 1e-3 * static_cast<double>(edge.queuedBytes(now)),
                        millisecondsOf(meanDelay(c)), describe(edge.model()));
  }
  if (used > rows.size()) text += fmt::format("and {} more edges\n", used - rows.size());
  last_ = now;
  return text;
}

std::string FabricReport::complaints() const {
  std::string text;
  for (std::size_t host = 0; host < switch_.hosts(); ++host) {
    const HostCounters& c = switch_.hostCounters(host);
    const FabricPortCounters port = switch_.port(host).counters();
    const std::string where = fmt::format("{} ({})", description_.hosts[host].name, switch_.port(host).describe());
    const auto say = [&](std::uint64_t count, const char* what) {
      if (count > 0) text += fmt::format("{}: {} frames {}\n", where, count, what);
    };
    say(port.tooLong,
        "from it were longer than the MTU, and dropped: give its host the fabric's MTU, and of a veth pair switch off "
        "at "
        "the host's end what cuts segments late: ethtool -K DEV tx off tso off gso off");
    say(port.unfinished,
        "from it, of the first 64 of TCP or UDP, had no right checksum, and will be refused where they go: at the "
        "host's end of a veth pair, ethtool -K DEV tx off");
    say(port.malformed, "from it were malformed, and dropped");
    say(port.missed, "from it were lost before the fabric could take them: it had too little processor time");
    say(c.foreignSource, "from it had another host's MAC address, and were dropped: see 'mac' in the description");
    say(c.noMemory, "from it found no memory, and were dropped: raise --memory");
    say(c.queueFull, "to it were not taken in time, and dropped");
    say(c.nobodyThere, "to it arrived while nobody was attached");
  }
  return text;
}

nlohmann::ordered_json FabricReport::edgeJson(EdgeId row, TimePoint now) const {
  const EdgeEmulator& edge = switch_.edge(row.from, row.to);
  const EdgeCounters& c = edge.counters();
  return {
      {"from", description_.hosts[row.from].name},
      {"to", description_.hosts[row.to].name},
      {"emulates", describe(edge.model())},
      {"offered", c.offered},
      {"offered_bytes", c.offeredBytes},
      {"accepted", c.accepted},
      {"accepted_bytes", c.acceptedBytes},
      {"delivered", c.delivered},
      {"delivered_bytes", c.deliveredBytes},
      {"lost_randomly", c.lostRandomly},
      {"lost_in_burst", c.lostInBurst},
      {"lost_in_queue", c.lostInQueue},
      {"lost_while_down", c.lostWhileDown},
      {"duplicated", c.duplicated},
      {"reordered", c.reordered},
      {"corrupted", c.corrupted},
      {"queue_bytes", edge.queuedBytes(now)},
      {"max_queue_bytes", c.maxQueueBytes},
      {"mean_queueing_ms", c.accepted == 0 ? 0.0 : millisecondsOf(c.totalQueueing) / static_cast<double>(c.accepted)},
      {"mean_delay_ms", millisecondsOf(meanDelay(c))}};
}

nlohmann::ordered_json FabricReport::hostJson(std::size_t host) const {
  const HostCounters& c = switch_.hostCounters(host);
  const FabricPort& port = switch_.port(host);
  const FabricPortCounters p = port.counters();
  return {{"name", description_.hosts[host].name},
          {"port", port.describe()},
          {"connected", port.connected()},
          {"frames_in", p.framesIn},
          {"bytes_in", p.bytesIn},
          {"frames_out", p.framesOut},
          {"bytes_out", p.bytesOut},
          {"malformed", p.malformed},
          {"too_long", p.tooLong},
          {"missed", p.missed},
          {"unfinished_checksums", p.unfinished},
          {"not_forwarded", c.notForwarded},
          {"foreign_source", c.foreignSource},
          {"no_memory", c.noMemory},
          {"nobody_there", c.nobodyThere},
          {"queue_full", c.queueFull},
          {"max_queue_bytes", c.maxQueueBytes}};
}

nlohmann::ordered_json FabricReport::json(TimePoint now) const {
  const DurationHistogram& late = switch_.lateness();
  nlohmann::ordered_json edges = nlohmann::ordered_json::array(), hosts = nlohmann::ordered_json::array();
  for (const EdgeId row : usedEdges()) edges.push_back(edgeJson(row, now));
  for (std::size_t host = 0; host < switch_.hosts(); ++host) hosts.push_back(hostJson(host));
  return {{"schema", "gloo-bypass/fabric/1"},
          {"seed", description_.seed},
          {"seconds", secondsOf(now - start_)},
          {"memory", {{"limit_bytes", switch_.arena().limitBytes()}, {"peak_bytes", switch_.arena().peakBytes()}}},
          {"frames_under_way", switch_.framesUnderWay()},
          {"late_us",
           {{"p50", microsecondsOf(late.quantile(0.5))},
            {"p99", microsecondsOf(late.quantile(0.99))},
            {"max", microsecondsOf(late.max())}}},
          {"edges", edges},
          {"hosts", hosts}};
}

nlohmann::ordered_json FabricReport::sample(TimePoint now) {
  nlohmann::ordered_json edges = nlohmann::ordered_json::array();
  for (const EdgeId row : usedEdges()) {
    const EdgeEmulator& edge = switch_.edge(row.from, row.to);
    const EdgeCounters& c = edge.counters();
    std::uint64_t& last = lastOffered_[row.from * switch_.hosts() + row.to];
    if (std::exchange(last, c.offered) == c.offered) continue;
    edges.push_back({{"from", description_.hosts[row.from].name},
                     {"to", description_.hosts[row.to].name},
                     {"offered_bytes", c.offeredBytes},
                     {"delivered", c.delivered},
                     {"delivered_bytes", c.deliveredBytes},
                     {"lost", c.lost()},
                     {"queue_bytes", edge.queuedBytes(now)}});
  }
  return {{"seconds", secondsOf(now - start_)}, {"edges", edges}};
}

}  // namespace gloo_bypass::fabric
