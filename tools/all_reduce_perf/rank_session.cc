#include "tools/all_reduce_perf/rank_session.h"

#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gloo/barrier.h>
#include <gloo/barrier_all_to_all.h>

#include "tools/all_reduce_perf/build_info.h"
#include "tools/all_reduce_perf/own_collectives.h"
#include "tools/common/carried_bytes.h"
#include "tools/common/error.h"
#include "tools/common/machine.h"
#include "tools/common/run_program.h"
#include "transport/base/boot_id.h"
#include "transport/base/seconds.h"
#include "transport/process/back_ends.h"
#include "transport/process/environment.h"
#include "transport/process/json_text.h"
#include "transport/process/process_transport.h"

namespace gloo_bypass {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::size_t kPageBytes = 4096;
// Between the last collective and the start of the idle time: longer than any transport spins after activity.
constexpr milliseconds kSettleTime{500};

// Rounds of calibrating what ranks compute: the first from so many parts, each from what the last has found. Of each
// the fastest of some times counts.
constexpr std::uint64_t kFirstParts = 2'000;
constexpr int kCalibrations = 4, kCalibrationTimes = 3;

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  flushStandardOutput();
}

// As c10d: the interfaces of GLOO_SOCKET_IFNAME, else the host's name if it resolves, else loopback. Ranks started here
// meet on loopback.
GlooPlace placeOf(const PerfOptions& options) {
  GlooPlace device{options.interface, options.hostname};
  if (device.interface.empty() && device.hostName.empty() && options.ranks == 0)
    device.interface = requestedInterfaces();
  if (!device.interface.empty() || !device.hostName.empty()) return device;
  device.hostName = "127.0.0.1";
  if (options.ranks == 0) {
    addrinfo* found = nullptr;
    const std::string name = hostName();
    if (::getaddrinfo(name.c_str(), nullptr, nullptr, &found) == 0) {
      ::freeaddrinfo(found);
      device.hostName = name;
    }
  }
  return device;
}

// Of our own collectives: the algorithm that the transport's name ends with; none: what the settings say.
std::optional<collectives::ChoiceTable> ownChoices(const std::string& transport) {
  const std::string_view algorithm = ownAlgorithmOf(transport);
  if (algorithm.empty()) return std::nullopt;
  return choicesOf(algorithm).value();  // the command line was checked
}

// A host's memory has one algorithm: it would be measured under another one's name.
void requireChoice(const std::string& transport, const std::vector<std::string>& carriers) {
  if (ownAlgorithmOf(transport).empty() || std::find(carriers.begin(), carriers.end(), "MEMORY") == carriers.end())
    return;
  throw ProgramError(
      fmt::format("some of these ranks share a host's memory, where no algorithm can be chosen: measure {}{}",
                  linkOf(transport), kOwnSuffix));
}

CarriedBytes carried() { return carriedBytes(ProcessTransport::instance().countersJson()); }

// Of the first of these options that differs; empty where none does.
std::string differenceBetween(const nlohmann::json& mine, const nlohmann::json& ofRankZero) {
  for (const auto& [name, value] : mine.items()) {
    const nlohmann::json other = ofRankZero.value(name, nlohmann::json());
    if (other != value)
      return fmt::format("{} is {} here but {} on rank 0; start all ranks with the same flags", name, value.dump(),
                         other.dump());
  }
  return "";
}

}  // namespace

RankExchange::RankExchange(gloo_version::StorePointer store, int rank, int size, milliseconds timeout)
    : store_(std::move(store)), rank_(rank), size_(size), timeout_(timeout) {}

void RankExchange::set(const std::string& key, const nlohmann::json& value) {
  const std::string text = jsonText(value);
  store_->set(key, std::vector<char>(text.begin(), text.end()));
}

nlohmann::json RankExchange::get(const std::string& key) {
  store_->wait({key}, timeout_);
  const std::vector<char> text = store_->get(key);
  return nlohmann::json::parse(text.begin(), text.end());
}

std::vector<nlohmann::json> RankExchange::gather(const std::string& name, const nlohmann::json& mine) {
  if (rank_ != 0) {
    set(fmt::format("{}/{}", name, rank_), mine);
    return {};
  }
  std::vector<nlohmann::json> all{mine};
  for (int rank = 1; rank < size_; ++rank) all.push_back(get(fmt::format("{}/{}", name, rank)));
  return all;
}

nlohmann::json RankExchange::broadcast(const std::string& name, const nlohmann::json& ofRankZero) {
  if (rank_ != 0) return get(name);
  set(name, ofRankZero);
  return ofRankZero;
}

void RankExchange::meet(const std::string& name) {
  gather(name, true);
  broadcast(name + "/all", true);
}

void RankExchange::claimRank() {
  const std::string key = fmt::format("claimed/{}", rank_);
  bool claimed = true;
  try {
    store_->wait({key}, milliseconds(1));
  } catch (const std::exception&) {
    claimed = false;  // the good case: nobody set it
  }
  if (claimed)
    throw ProgramError(
        fmt::format("rank {} is in the store already: it was started twice, or --store-dir holds an earlier "
                    "run (give it a fresh folder)",
                    rank_));
  set(key, true);
}

void RankSession::FreeDeleter::operator()(void* data) const { std::free(data); }

RankSession::RankSession(const PerfOptions& options, int rank, int size, const gloo_version::StorePointer& store)
    : options_(options),
      rank_(rank),
      size_(size),
      store_(store),
      timeout_(static_cast<std::int64_t>(options.timeoutSeconds * 1000)),
      // A rank may still be in an operation that has its own timeout.
      exchange_(store, rank, size, 2 * timeout_),
      place_(placeOf(options)),
      collectiveOptions_{options.dataType, options.reduceOp, options.algorithm, options.segmentBytes, timeout_} {}

nlohmann::json RankSession::run() {
  try {
    return runStages();
  } catch (const std::exception& error) {
    throw ProgramError(fmt::format("rank {}, {}: {}", rank_, stage_, oneLine(error.what())));
  }
}

nlohmann::json RankSession::runStages() {
  introduce();
  allocate();
  nlohmann::json report = reportFrame();
  if (options_.idleSeconds > 0) {
    report["idle"] = nlohmann::json::array({measureIdle()});
  } else {
    for (const std::string& transport : options_.transports) connect(transport);
    describeDevices();
    if (options_.computeMilliseconds > 0) calibrate();
    if (options_.firstCalls > 0) report["first_calls"] = measureFirstCalls();
    report.update(measureAll());
  }
  stage_ = "leaving";
  exchange_.meet("end");
  if (rank_ != 0) return nullptr;
  report["ranks"] = ranks_;
  return report;
}

void RankSession::introduce() {
  stage_ = "meeting the other ranks";
  exchange_.claimRank();
  nlohmann::json mine = toJson(options_);
  mine["world_size"] = size_;
  const std::string difference = differenceBetween(mine, exchange_.broadcast("options", mine));
  if (!difference.empty()) refuse(difference);
  ranks_ = exchange_.gather("ranks", {{"rank", rank_}, {"pid", ::getpid()}, {"machine", describeMachine()}});
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].contains("difference"))
      throw ProgramError(fmt::format("rank {} says: {}", rank, ranks_[rank]["difference"].get<std::string>()));
  }
  // Containers of one machine have its clock, whatever their names; two machines may have one name.
  std::set<std::string> boots;
  for (const nlohmann::json& boot : exchange_.gather("boots", bootId())) boots.insert(boot);
  sharesClock_ = exchange_.broadcast("one-clock", boots.size() == 1 && !boots.contains("")).get<bool>();
  if (rank_ == 0) print(headerText(options_, ranks_));
}

void RankSession::refuse(const std::string& difference) {
  try {
    (void)exchange_.gather("ranks", {{"difference", difference}});
  } catch (const std::exception&) {
    // Rank 0 may end before it has answered.
  }
  throw ProgramError(difference);
}

void RankSession::allocate() {
  stage_ = fmt::format("allocating {} bytes", options_.maxBytes);
  const std::size_t bytes = (options_.maxBytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  data_.reset(std::aligned_alloc(kPageBytes, bytes));
  if (data_ == nullptr) throw ProgramError("not enough memory; use a smaller --maxbytes");
  std::memset(data_.get(), 0, bytes);  // real pages from here on
}

void RankSession::connect(const std::string& transport) {
  stage_ = transport + ", connecting";
  if (usesOwnCollectives(transport)) {
    Link link{.transport = transport};
    link.own = makeOwnGroup({linkOf(transport), place_.interface}, rank_, size_, timeout_,
                            gloo_version::withPrefix("connect/" + transport, store_), ownChoices(transport));
    link.carriers = link.own->carriers();
    requireChoice(transport, link.carriers);
    links_.push_back(std::move(link));
    return;
  }
  Link link{.transport = transport, .device = makeDevice(transport, place_), .carriers = {transport}};
  auto context = std::make_shared<::gloo::rendezvous::Context>(rank_, size_);
  context->setTimeout(timeout_);
  const auto store = gloo_version::withPrefix("connect/" + transport, store_);
  gloo_version::connectFullMesh(*context, store, link.device);
  if (hasBoundBuffersOnly(transport)) {
    exchange_.meet("connected/" +
                   transport);  // Gloo's ibverbs gives up on a peer that is not ready within half a second
    std::shared_ptr<::gloo::Context> whole = context;
    link.boundBarrier = std::make_unique<::gloo::BarrierAllToAll>(whole);
  }
  link.context = std::move(context);
  links_.push_back(std::move(link));
}

void RankSession::describeDevices() {
  stage_ = "describing devices";
  nlohmann::json devices = nlohmann::json::object();
  for (const Link& link : links_) devices[link.transport] = link.own ? link.own->describe() : link.device->str();
  const std::vector<nlohmann::json> all = exchange_.gather("devices", devices);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    ranks_[rank]["devices"] = all[rank];
    for (const auto& [transport, device] : all[rank].items())
      print(fmt::format("#  Rank {:2} {}: {}\n", rank, oneLine(transport), oneLine(device.get<std::string>())));
  }
}

void RankSession::calibrate() {
  stage_ = "measuring how fast it computes";
  computedParts_ = kFirstParts;
  for (int i = 0; i < kCalibrations; ++i) {
    exchange_.meet(fmt::format("calibrate/{}", i));  // all at the same time, as they will compute
    const double ns = static_cast<double>(computation_.fastest(computedParts_, kCalibrationTimes).count());
    double sum = 0;
    for (const nlohmann::json& found : exchange_.gather(fmt::format("parts/{}", i), computedParts_ / ns))
      sum += found.get<double>();
    const auto parts = static_cast<std::uint64_t>(sum / size_ * options_.computeMilliseconds * 1e6);
    computedParts_ =
        exchange_.broadcast(fmt::format("parts/{}/all", i), std::max<std::uint64_t>(1, parts)).get<std::uint64_t>();
  }
}

nlohmann::json RankSession::measureFirstCalls() {
  const std::uint64_t bytes = scanSizes(options_).front();
  const std::size_t count = bytes / elementBytes(options_.dataType);
  fillFixedPoint(collectiveOptions_, data_.get(), count);
  nlohmann::json found = nlohmann::json::array();
  for (Link& link : links_) {
    stage_ = fmt::format("{}, first calls of {} bytes", link.transport, bytes);
    const auto collective = prepare(link, count);
    const CarriedBytes before = carried();
    exchange_.meet("first/" + link.transport);  // by the store: nothing has gone over the link yet
    std::vector<std::int64_t> callNs;
    auto last = Clock::now();
    for (unsigned i = 0; i < options_.firstCalls; ++i) {
      collective->run();
      const auto now = Clock::now();
      callNs.push_back(std::chrono::duration_cast<nanoseconds>(now - last).count());
      last = now;
    }
    requireCarried(link, before, bytes, options_.firstCalls);
    const auto ofRanks = exchange_.gather("first-calls/" + link.transport, callNs);
    if (rank_ != 0) continue;
    const FirstCalls calls = summarizeFirstCalls(
        link.transport, bytes, std::vector<std::vector<std::int64_t>>(ofRanks.begin(), ofRanks.end()));
    found.push_back(toJson(calls));
    print(firstCallsText(calls));
  }
  return found;
}

nlohmann::json RankSession::measureAll() {
  if (rank_ == 0) print("#\n" + columnsText(options_));
  std::vector<SizeResult> results;
  nlohmann::json rows = nlohmann::json::array();
  for (const std::uint64_t bytes : scanSizes(options_)) {
    const std::vector<RankMeasurement> mine = measureSize(bytes);
    stage_ = fmt::format("gathering results at {} bytes", bytes);
    const std::vector<nlohmann::json> ofRanks = exchange_.gather(fmt::format("size/{}", bytes), mine);
    if (rank_ != 0) continue;
    std::vector<std::vector<RankMeasurement>> byTransport(links_.size());
    for (const nlohmann::json& ofRank : ofRanks)
      for (std::size_t i = 0; i < links_.size(); ++i) byTransport[i].push_back(ofRank.at(i).get<RankMeasurement>());
    results.push_back(summarize(options_, bytes, byTransport));
    rows.push_back(toJson(options_, results.back()));
    print(rowsText(options_, results.back()));
  }
  if (rank_ != 0) return nlohmann::json::object();
  print(footerText(options_, results));
  nlohmann::json averages = nlohmann::json::object();
  const std::vector<double> busbw = averageBusBandwidth(results);
  for (std::size_t i = 0; i < busbw.size(); ++i) averages[options_.transports[i]] = busbw[i];
  return {{"results", rows}, {"average_busbw_gb_s", averages}, {"wrong_total", totalWrong(results)}};
}

std::vector<RankMeasurement> RankSession::measureSize(std::uint64_t bytes) {
  const std::size_t count = bytes / elementBytes(options_.dataType);
  std::vector<RankMeasurement> measurements(links_.size());
  std::vector<std::unique_ptr<Collective>> collectives;
  const auto enter = [&](const Link& link, const char* what) {
    stage_ = fmt::format("{}, {} {} bytes", link.transport, what, bytes);
  };
  fillFixedPoint(collectiveOptions_, data_.get(), count);
  for (Link& link : links_) {
    enter(link, "preparing");
    collectives.push_back(prepare(link, count));
    barrier(link);  // bound buffers exist on all ranks before anyone writes to them
    for (unsigned i = 0; i < options_.warmupIterations; ++i) collectives.back()->run();
  }
  for (unsigned round = 0; round < options_.effectiveRounds(); ++round) {
    for (std::size_t i = 0; i < links_.size(); ++i) {
      enter(links_[i], "timing");
      measurements[i].rounds.push_back(sample(links_[i], *collectives[i], bytes));
    }
  }
  for (std::size_t i = 0; i < links_.size(); ++i) {
    enter(links_[i], "checking");
    measurements[i].wrong = check(*collectives[i], count);
    barrier(links_[i]);  // bound buffers are needed until the last rank is done
  }
  return measurements;
}

RankSample RankSession::sample(Link& link, Collective& collective, std::uint64_t bytes) {
  RankSample sample;
  sample.iterationNs.reserve(options_.iterations);
  const CarriedBytes before = carried();
  barrier(link);
  const double cpuStart = processCpuSeconds();
  const auto start = Clock::now();
  auto last = start;
  for (unsigned i = 0; i < options_.iterations; ++i) {
    if (computedParts_ > 0) {
      computation_.run(computedParts_);
      last = Clock::now();
    }
    collective.run();
    const auto now = Clock::now();
    if (computedParts_ > 0 && sharesClock_) {
      sample.beginNs.push_back(nanoseconds(last.time_since_epoch()).count());
      sample.endNs.push_back(nanoseconds(now.time_since_epoch()).count());
    }
    sample.iterationNs.push_back(std::chrono::duration_cast<nanoseconds>(now - last).count());
    sample.wallSeconds += secondsOf(now - last);
    last = now;
  }
  sample.cpuSeconds = processCpuSeconds() - cpuStart;
  if (computedParts_ > 0) {
    sample.roundsSeconds = secondsOf(last - start);
    for (unsigned i = 0; i < options_.iterations; ++i) computation_.run(computedParts_);
    sample.roundsAloneSeconds = secondsOf(Clock::now() - last);
  }
  requireCarried(link, before, bytes, options_.iterations);
  return sample;
}

void RankSession::requireCarried(Link& link, const CarriedBytes& before, std::uint64_t bytes,
                                 std::uint64_t reductions) {
  const CarriedBytes after = carried();
  // A rank that went on to the next transport would send into another one's count. Bound buffers are needed until the
  // last rank is done, too.
  barrier(link);
  // Whatever the algorithm, a rank receives half a vector at least: the part of the sum that it has not made itself.
  const std::uint64_t leastBytes = size_ > 1 ? bytes / 2 * reductions : 0;
  const bool isOurs = link.own != nullptr || findBackEnd(link.transport) != nullptr;
  requireCarriedBy(link.carriers, isOurs, before, after, leastBytes);
}

std::uint64_t RankSession::check(Collective& collective, std::size_t count) {
  std::uint64_t wrong = 0;
  for (unsigned i = 0; i < options_.checkIterations; ++i) {
    fillCheck(collectiveOptions_, data_.get(), count, rank_, size_, i);
    collective.run();
    wrong += countWrong(collectiveOptions_, data_.get(), count, size_, i);
  }
  return wrong;
}

std::unique_ptr<Collective> RankSession::prepare(Link& link, std::size_t count) {
  return link.own ? makeOwnCollective(collectiveOptions_, *link.own, data_.get(), count)
                  : makeCollective(collectiveOptions_, link.context, &link.nextTag, data_.get(), count);
}

void RankSession::barrier(Link& link) {
  if (link.own) return ownBarrier(*link.own);
  if (link.boundBarrier != nullptr) return link.boundBarrier->run();
  ::gloo::BarrierOptions call(link.context);
  call.setTag(link.nextTag++);
  call.setTimeout(timeout_);
  ::gloo::barrier(call);
}

nlohmann::json RankSession::measureIdle() {
  const MemoryUse before = processMemory();
  connect(options_.transports.front());
  describeDevices();
  Link& link = links_.front();
  stage_ = link.transport + ", before the idle time";
  const std::size_t count = options_.maxBytes / elementBytes(options_.dataType);
  {
    const CarriedBytes carriedBefore = carried();
    const auto collective = prepare(link, count);
    barrier(link);
    for (unsigned i = 0; i < options_.warmupIterations; ++i) collective->run();
    requireCarried(link, carriedBefore, options_.maxBytes, options_.warmupIterations);
  }
  exchange_.meet("idle");
  std::this_thread::sleep_for(kSettleTime);
  const MemoryUse now = processMemory();
  const double cpuStart = processCpuSeconds();
  const auto start = Clock::now();
  std::this_thread::sleep_for(std::chrono::duration<double>(options_.idleSeconds));
  const double seconds = secondsOf(Clock::now() - start);
  const double cpu = processCpuSeconds() - cpuStart;
  stage_ = link.transport + ", after the idle time";
  barrier(link);  // the link still works
  const auto growth = [](std::uint64_t to, std::uint64_t from) {
    return static_cast<std::int64_t>(to) - static_cast<std::int64_t>(from);
  };
  const nlohmann::json all =
      exchange_.gather("idle-results", {{"rank", rank_},
                                        {"seconds", seconds},
                                        {"cpu_seconds", cpu},
                                        {"cpu_percent", seconds > 0 ? 100 * cpu / seconds : 0.0},
                                        {"rss_bytes", now.rssBytes},
                                        {"pss_bytes", now.pssBytes},
                                        {"rss_growth_bytes", growth(now.rssBytes, before.rssBytes)},
                                        {"pss_growth_bytes", growth(now.pssBytes, before.pssBytes)}});
  const nlohmann::json idle = {{"transport", link.transport}, {"seconds", options_.idleSeconds}, {"ranks", all}};
  if (rank_ == 0) print("#\n" + idleText(idle));
  return idle;
}

nlohmann::json RankSession::reportFrame() const {
  return {
      {"schema", "gloo-bypass/all_reduce_perf/1"},
      {"build", buildInfo()},
      {"parameters", toJson(options_)},
      {"unix_time",
       std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count()}};
}

}  // namespace gloo_bypass
