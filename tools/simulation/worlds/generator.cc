#include "tools/simulation/worlds/generator.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "collectives/schedule/catalogue.h"
#include "tools/simulation/core/random.h"
#include "tools/simulation/worlds/operation_case.h"
#include "transport/wire/packet.h"

namespace gloo_bypass::sim {
namespace {

// In one of so many worlds the traffic is more than a session may hold at a time, so that it must let go of it.
constexpr std::uint64_t kMuchTrafficOneIn = 200;
constexpr std::size_t kMuchTrafficBytes = 3'000'000, kSmallBuffer = 256 << 10, kSmallEager = 64 << 10;

using collectives::ElementType;
using collectives::Kind;
using collectives::Reduction;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Three significant digits: what a script's text keeps exactly.
double rounded(double value) {
  if (value <= 0) return 0;
  const double digit = std::pow(10.0, std::floor(std::log10(value)) - 2);
  return digit >= 1 ? std::round(value / digit) * digit : std::round(value);
}
Duration duration(double nanoseconds) { return Duration(static_cast<Duration::rep>(rounded(nanoseconds))); }
// Of a percent, four decimals; computed as a reader of the text does.
double share(double probability) { return std::round(probability * 1e6) / 1e4 * 0.01; }

// All that versions of this wire format may lack.
constexpr std::size_t kCapabilities =
    wire::kCapabilityRepair | wire::kCapabilityPieces | wire::kCapabilityChunks | wire::kCapabilitySmall;

double nanoseconds(Duration time) { return static_cast<double>(time.count()); }

class Generator {
 public:
  Generator(std::uint64_t seed, Plant plant) : random_(mixBits(seed + 0x68756e74)) {
    script_.seed = seed;
    script_.plant = plant;
    // Not from random_: other seeds draw what they drew without this.
    muchTraffic_ = plant == Plant::kHoard || (plant == Plant::kNothing && mixBits(seed) % kMuchTrafficOneIn == 0);
  }

  Script make() {
    // Half of the worlds have paths within a site.
    roundTrip_ = duration(random_.chance(0.5) ? random_.logUniform(10e3, 1e6) : random_.logUniform(1e6, 300e6));
    spread_ = std::max(duration(nanoseconds(roundTrip_) * random_.logUniform(0.1, 10)), Duration(microseconds(100)));
    lossless_ = random_.chance(0.1);
    const bool group = random_.chance(0.4) && !muchTraffic_;
    script_.ranks = group ? 2 + static_cast<int>(random_.below(random_.below(4) + 1)) : random_.chance(0.8) ? 2 : 3;
    addSettings(group);
    for (int a = 0; a < script_.ranks; ++a) {
      for (int b = a + 1; b < script_.ranks; ++b) addPair(a, b);
    }
    group ? addOperations() : addMessages();
    for (std::uint64_t faults = random_.below(2) * random_.below(6); faults > 0; --faults) addFault();
    return std::move(script_);
  }

 private:
  template <typename T>
  void sometimes(double probability, T& value, const T& other) {
    if (random_.chance(probability)) value = other;
  }

  // ---- Ranks and paths.

  RankScript someSettings() {
    RankScript settings;
    static constexpr CongestionControl kControls[] = {CongestionControl::kFixed, CongestionControl::kSwift,
                                                      CongestionControl::kBbr};
    static constexpr std::pair<Repair::Mode, std::size_t> kRepairs[] = {
        {Repair::Mode::kOff, 0}, {Repair::Mode::kOn, 0}, {Repair::Mode::kOn, 1}, {Repair::Mode::kOn, 25}};
    if (random_.chance(0.4)) settings.congestion = random_.pick(kControls);
    if (random_.chance(0.5)) std::tie(settings.fec, settings.fecPercent) = random_.pick(kRepairs);
    sometimes<std::size_t>(0.3, settings.eagerBytes, kSmallEager);
    sometimes<std::size_t>(0.3, settings.bufferBytes, kSmallBuffer);
    sometimes<std::size_t>(0.3, settings.rendezvousBytes, 1024);
    if (random_.chance(0.2)) settings.peerTimeout = duration(random_.logUniform(10e9, 40e9));
    return settings;
  }

  // Likewise not from random_. In half of the groups every rank waits for each operation.
  std::size_t someAhead(int rank) const {
    const std::uint64_t drawn = mixBits(script_.seed + 0x6168656164);
    return drawn % 2 == 0 ? 0 : mixBits(drawn + static_cast<std::uint64_t>(rank)) % 5;
  }

  void addSettings(bool group) {
    RankScript common = someSettings();
    const bool unprotected = script_.plant == Plant::kFlip || random_.chance(0.15);
    if (unprotected) common.checksum = PayloadChecksum::kOff;
    corrupts_ = !unprotected && !lossless_;
    // What repair frames need is more than the buffers.
    const bool unrepaired = muchTraffic_ && random_.chance(0.5);
    const bool differ = random_.chance(0.3), mismatch = random_.chance(0.03);
    for (int rank = 0; rank < script_.ranks; ++rank) {
      RankScript settings = differ ? someSettings() : common;
      settings.checksum = common.checksum;
      if (mismatch && rank == 0) settings.checksum = unprotected ? PayloadChecksum::kOn : PayloadChecksum::kOff;
      settings.rank = rank;
      if (muchTraffic_) {
        settings.bufferBytes = kSmallBuffer;
        settings.eagerBytes = kSmallEager;
        if (unrepaired) std::tie(settings.fec, settings.fecPercent) = std::pair(Repair::Mode::kOff, 0);
      }
      if (!lossless_ && random_.chance(0.1)) settings.lacks = 1 + random_.below(kCapabilities);
      if (random_.chance(0.5)) settings.startAt = duration(random_.uniform() * 4 * nanoseconds(roundTrip_));
      if (random_.chance(0.3)) settings.turn = duration(random_.logUniform(100, 200e3));
      if (group) settings.ahead = someAhead(rank);
      RankScript byDefault;
      byDefault.rank = rank;
      if (!(settings == byDefault)) script_.settings.push_back(settings);
    }
    // What is corrupted must be noticed, by every rank.
    if (mismatch) corrupts_ = false;
  }

  void addPair(int a, int b) {
    PairScript pair;
    pair.from = a;
    pair.to = b;
    pair.lossless = lossless_;
    static constexpr std::size_t kDatagrams[] = {548, 1472, 1472, 1472, 8972, 8972, 32000};
    pair.datagramBytes = random_.pick(kDatagrams);
    if (!lossless_ && random_.chance(0.3)) pair.keyPackets = 1 + random_.below(100);
    if (!lossless_ && random_.chance(0.15)) pair.rails = 2 + static_cast<int>(random_.below(2));
    PairScript byDefault;
    byDefault.from = a;
    byDefault.to = b;
    if (!(pair == byDefault)) script_.pairs.push_back(pair);
    for (int rail = 0; rail < pair.rails; ++rail) {
      const fabric::EdgeChange forth = someEdge(pair);
      script_.edges.push_back({a, b, rail, forth});
      script_.edges.push_back({b, a, rail, random_.chance(0.5) ? forth : someEdge(pair)});
    }
  }

  fabric::EdgeChange someEdge(const PairScript& pair) {
    fabric::EdgeChange edge;
    if (lossless_) {
      edge.delay = duration(random_.logUniform(200, 50e3));
      edge.rateBitsPerSecond = static_cast<std::uint64_t>(rounded(random_.logUniform(1e9, 1e11)));
      edge.queueBytes =
          static_cast<std::uint64_t>(rounded(static_cast<double>(pair.datagramBytes * (2 + random_.below(32)))));
      return edge;
    }
    edge.delay = duration(nanoseconds(roundTrip_) / 2 * (random_.chance(0.8) ? 1 : random_.logUniform(0.2, 5)));
    static constexpr double kLoss[] = {0, 0, 0, 0.001, 0.01, 0.03, 0.1, 0.2};
    if (const double loss = random_.pick(kLoss); loss > 0) edge.loss = share(loss);
    if (random_.chance(0.15)) edge.burstEnter = share(random_.logUniform(0.001, 0.02));
    if (random_.chance(0.25)) edge.duplication = share(random_.logUniform(0.001, 0.2));
    if (random_.chance(0.35)) {
      edge.reordering = share(random_.logUniform(0.001, 0.3));
      edge.reorderDelay = std::max<Duration>(microseconds(1), duration(nanoseconds(roundTrip_) / 4));
    }
    if (corrupts_ && random_.chance(0.25)) edge.corruption = share(random_.logUniform(0.001, 0.1));
    if (random_.chance(0.35)) edge.jitter = duration(nanoseconds(roundTrip_) / 8);
    static constexpr double kRates[] = {0, 0, 1e7, 1e8, 1e9, 1e10};
    if (const double rate = random_.pick(kRates); rate > 0) {
      edge.rateBitsPerSecond = static_cast<std::uint64_t>(rate);
      const double product = rate / 8 * nanoseconds(roundTrip_) * 1e-9;
      edge.queueBytes = static_cast<std::uint64_t>(rounded(std::max(product * random_.logUniform(0.1, 4), 40e3)));
    }
    return edge;
  }

  // ---- Traffic.

  void addMessages() {
    for (int from = 0; from < script_.ranks; ++from) {
      for (int to = 0; to < script_.ranks; ++to) {
        if (from == to) continue;
        TrafficModel model;
        model.messages = static_cast<int>(random_.below(16));
        model.totalBytes = static_cast<std::size_t>(random_.logUniform(1000, 200e3));
        if (muchTraffic_) {
          model.messages = 60;
          model.totalBytes = kMuchTrafficBytes;
        }
        model.maxMessageBytes = model.totalBytes;
        model.ordinaryKeys = 1 + static_cast<int>(random_.below(5));
        model.spread = spread_;
        for (PlannedMessage planned : planTraffic(model, random_.next())) {
          planned.sendAt = duration(nanoseconds(planned.sendAt));
          planned.receiveAt = duration(nanoseconds(planned.receiveAt));
          MessageScript message;
          static_cast<PlannedMessage&>(message) = planned;
          message.from = from;
          message.to = to;
          script_.messages.push_back(message);
        }
      }
    }
  }

  void addOperations() {
    static constexpr ElementType kTypes[] = {ElementType::kFloat32, ElementType::kBfloat16, ElementType::kInt64,
                                             ElementType::kUint8};
    static constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kSum, Reduction::kMax, Reduction::kAverage};
    script_.hosts =
        random_.chance(0.3) ? 1 + static_cast<int>(random_.below(static_cast<std::uint64_t>(script_.ranks))) : 1;
    if (random_.chance(0.15)) script_.callTimeout = duration(random_.logUniform(1e9, 20e9));
    const std::uint64_t operations = 1 + random_.below(6);
    for (std::uint64_t i = 0; i < operations; ++i) {
      OperationScript operation;
      operation.kind = random_.chance(0.4) ? Kind::kAllReduce : static_cast<Kind>(random_.below(collectives::kKinds));
      operation.type = random_.pick(kTypes);
      operation.reduction = random_.pick(kReductions);
      // Averages are exact where ranks are a power of two.
      const bool exact = operation.reduction != Reduction::kAverage || script_.ranks == 2 || script_.ranks == 4;
      if (!exact || !isDefined(operation.reduction, operation.type)) operation.reduction = Reduction::kSum;
      operation.count = random_.chance(0.05) ? 0 : static_cast<std::size_t>(rounded(random_.logUniform(1, 6000)));
      operation.root = static_cast<int>(random_.below(static_cast<std::uint64_t>(script_.ranks)));
      operation.uneven = collectives::hasBlocks(operation.kind) && random_.chance(0.3);
      operation.inPlace = random_.chance(0.4);
      operation.pause = duration(nanoseconds(spread_) * random_.uniform() / 2);
      script_.operations.push_back(operation);
    }
    const Kind last = script_.operations.back().kind;
    if (random_.chance(0.05) && (last == Kind::kAllReduce || last == Kind::kBroadcast || last == Kind::kReduce)) {
      script_.operations.back().differs = static_cast<int>(random_.below(static_cast<std::uint64_t>(script_.ranks)));
    }
    for (int kind = 0; kind < collectives::kKinds; ++kind) addAlgorithm(static_cast<Kind>(kind));
  }

  void addAlgorithm(Kind kind) {
    std::vector<collectives::Algorithm> of;
    for (const collectives::AlgorithmRow& row : collectives::algorithms()) {
      if (row.kind == kind) of.push_back(row.algorithm);
    }
    if (!random_.chance(0.5)) return;
    script_.algorithms += script_.algorithms.empty() ? "" : ",";
    script_.algorithms += std::string(nameOf(kind)) + "=" + nameOf(of[random_.below(of.size())]);
  }

  // ---- Faults.

  void addFault() {
    FaultScript fault;
    fault.at = duration(random_.uniform() * (1.5 * nanoseconds(spread_) + 4 * nanoseconds(roundTrip_)));
    // Mostly of the order of the path's own times; some as long as people's.
    const double most = random_.chance(0.7) ? 20 * nanoseconds(roundTrip_) + 1e6 : 5e9;
    fault.length = duration(random_.logUniform(1e4, most));
    fault.rank = static_cast<int>(random_.below(static_cast<std::uint64_t>(script_.ranks)));
    fault.from = static_cast<int>(random_.below(static_cast<std::uint64_t>(script_.ranks)));
    fault.to = (fault.from + 1 + static_cast<int>(random_.below(static_cast<std::uint64_t>(script_.ranks - 1)))) %
               script_.ranks;
    const PairScript pair = script_.pair(fault.from, fault.to);
    fault.rail = static_cast<int>(random_.below(static_cast<std::uint64_t>(pair.rails)));
    const double choice = random_.uniform();
    if (choice < 0.4 || choice >= 0.95) {
      if (lossless_) return;
      choice < 0.4 ? changeEdge(fault) : limitPath(fault, pair);
    } else if (choice < 0.7) {
      fault.kind = FaultKind::kPause;
    } else {
      endRank(fault, choice);
    }
    script_.faults.push_back(fault);
  }

  void changeEdge(FaultScript& fault) {
    fault.kind = FaultKind::kEdge;
    const double choice = random_.uniform();
    if (choice < 0.5) {
      fault.settings.loss = share(random_.chance(0.5) ? 1 : random_.logUniform(0.1, 0.9));
    } else if (choice < 0.7) {
      fault.settings.delay = duration(nanoseconds(roundTrip_) * random_.logUniform(0.05, 5));
    } else if (choice < 0.8) {
      fault.settings.reordering = share(random_.logUniform(0.1, 0.9));
      fault.settings.reorderDelay = duration(nanoseconds(roundTrip_) * random_.logUniform(0.1, 4));
    } else if (choice < 0.9 && corrupts_) {
      fault.settings.corruption = share(random_.logUniform(0.1, 0.9));
    } else {
      fault.settings.duplication = share(random_.logUniform(0.1, 0.9));
    }
  }

  void limitPath(FaultScript& fault, const PairScript& pair) {
    fault.kind = FaultKind::kMtu;
    fault.length = Duration{0};
    const double least = 548, most = static_cast<double>(std::max<std::size_t>(pair.datagramBytes, 549));
    fault.bytes = static_cast<std::size_t>(rounded(random_.logUniform(least, most)));
    fault.bytes = std::max<std::size_t>(fault.bytes, 548);
  }

  void endRank(FaultScript& fault, double choice) {
    const bool group = !script_.operations.empty();
    if (choice < 0.78) {
      fault.kind = FaultKind::kKill;
      fault.length = Duration{0};
    } else if (choice < 0.86 && !group) {
      fault.kind = FaultKind::kRestart;
    } else if (choice < 0.9 || group) {
      fault.kind = FaultKind::kAbort;
      fault.length = Duration{0};
    } else {
      fault.kind = FaultKind::kClose;
      fault.length = Duration{0};
    }
    // A memory link says at once that the peer has gone; of a network, nothing may be heard.
    if (lossless_ || random_.chance(0.5)) fault.notice = duration(random_.logUniform(1e3, 10e6));
  }

  Random random_;
  Script script_;
  Duration roundTrip_{}, spread_{};
  bool lossless_ = false, corrupts_ = false, muchTraffic_ = false;
};

}  // namespace

Script generateScript(std::uint64_t seed, Plant plant) { return Generator(seed, plant).make(); }

}  // namespace gloo_bypass::sim
