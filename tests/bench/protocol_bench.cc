// Measures the protocol core alone: two sessions in memory, one thread, no port. The cost of a datagram without any
// NIC.
//
//   protocol_bench [--seconds N] [--only TEXT] [--json FILE]
//
// Every datagram is copied once into a slot and passed to the other session from there, as in a memory link's ring.
// Each figure is measured in many short rounds; median and 99th percentile are over the rounds. GB means 1e9 bytes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commit.h"
#include "transport/core/session.h"

namespace gloo_bypass {
namespace {

TimePoint now() {
  return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
}

struct Figure {
  std::string name;
  double medianNanoseconds = 0, p99Nanoseconds = 0;  // of one datagram, either way
  double packetsPerSecond = 0, messagesPerSecond = 0, bytesPerSecond = 0;
};

struct Shape {
  std::string name;
  std::size_t messageBytes = 0;
  std::size_t batch = 0;  // messages posted at a time
  std::size_t datagramBytes = 0;
  bool lossless = true;
  bool verified = false;  // the port checks datagrams: the payload needs no checksum
};

class Bench {
 public:
  explicit Bench(const Shape& shape) : shape_(shape), a_(configOf(shape), 1, 11), b_(configOf(shape), 2, 22) {
    data_.resize(shape.messageBytes);
    sink_.resize(shape.messageBytes);
    slot_.resize(shape.datagramBytes);
    if (shape.verified) {
      a_.markVerified();
      b_.markVerified();
    }
    a_.connect(now(), 2, shape.datagramBytes);
    b_.connect(now(), 1, shape.datagramBytes);
    const TimePoint limit = now() + std::chrono::seconds(5);
    while ((a_.state() != SessionState::kEstablished || b_.state() != SessionState::kEstablished) && now() < limit)
      pump(now());
  }

  bool established() const {
    return a_.state() == SessionState::kEstablished && b_.state() == SessionState::kEstablished;
  }
  std::uint64_t packets() const { return packets_; }

  // Sends one batch; returns when all of it has arrived.
  void exchange() {
    for (std::size_t i = 0; i < shape_.batch; ++i) {
      (void)b_.postReceive({token_ + i, kKey, sink_.data(), sink_.size(), false}).ok();
    }
    for (std::size_t i = 0; i < shape_.batch; ++i)
      (void)a_.postSend({token_ + i, kKey, data_.data(), data_.size(), 0}).ok();
    token_ += shape_.batch;
    received_ = 0;
    while (received_ < shape_.batch) pump(now());
  }

 private:
  static constexpr MessageKey kKey{MessageKind::kUnbound, 7};
  static constexpr int kBurst = 32;  // datagrams in one direction before the other side's turn, as a port's burst

  static SessionConfig configOf(const Shape& shape) {
    SessionConfig config;
    config.losslessLink = shape.lossless;
    config.congestionControl = CongestionControl::kFixed;
    return config;
  }

  // Takes the time once a round, as an endpoint does.
  void pump(TimePoint time) {
    carry(time, a_, b_);
    carry(time, b_, a_);
    SessionEvent event;
    while (b_.pollEvent(&event)) received_ += event.type == SessionEvent::Type::kReceiveComplete;
    while (a_.pollEvent(&event)) {
    }
    if (a_.pollTimeout() <= time) a_.handleTimeout(time);
    if (b_.pollTimeout() <= time) b_.handleTimeout(time);
  }

  void carry(TimePoint time, Session& from, Session& to) {
    SessionDatagram datagram;
    for (int i = 0; i < kBurst && from.pollTransmit(time, &datagram); ++i) {
      std::memcpy(slot_.data(), datagram.header.data(), datagram.header.size());
      if (!datagram.payload.empty())
        std::memcpy(slot_.data() + datagram.header.size(), datagram.payload.data(), datagram.payload.size());
      to.handleDatagram(time, std::span(slot_).first(datagram.header.size() + datagram.payload.size()));
      ++packets_;
    }
  }

  const Shape shape_;
  Session a_, b_;
  std::vector<std::byte> data_, sink_, slot_;
  OperationToken token_ = 1;
  std::size_t received_ = 0;
  std::uint64_t packets_ = 0;
};

Figure measure(const Shape& shape, double secondsToRun) {
  constexpr auto kRound = std::chrono::milliseconds(5);
  Bench bench(shape);
  Figure figure{.name = shape.name};
  if (!bench.established()) return figure;
  const TimePoint warm = now() + std::chrono::milliseconds(200);
  while (now() < warm) bench.exchange();
  std::vector<double> nanoseconds;
  std::uint64_t messages = 0;
  const std::uint64_t packetsBefore = bench.packets();
  const TimePoint start = now();
  const TimePoint end = start + Duration(static_cast<Duration::rep>(secondsToRun * 1e9));
  while (now() < end) {
    const std::uint64_t before = bench.packets();
    const TimePoint roundStart = now();
    TimePoint time = roundStart;
    while (time < roundStart + kRound) {
      bench.exchange();
      messages += shape.batch;
      time = now();
    }
    nanoseconds.push_back(static_cast<double>((time - roundStart).count()) /
                          static_cast<double>(bench.packets() - before));
  }
  const double elapsed = static_cast<double>((now() - start).count()) * 1e-9;
  std::sort(nanoseconds.begin(), nanoseconds.end());
  figure.medianNanoseconds = nanoseconds[nanoseconds.size() / 2];
  figure.p99Nanoseconds = nanoseconds[nanoseconds.size() * 99 / 100];
  figure.packetsPerSecond = static_cast<double>(bench.packets() - packetsBefore) / elapsed;
  figure.messagesPerSecond = static_cast<double>(messages) / elapsed;
  figure.bytesPerSecond = figure.messagesPerSecond * static_cast<double>(shape.messageBytes);
  return figure;
}

std::string machine() {
  std::ifstream cpus("/proc/cpuinfo");
  for (std::string line; std::getline(cpus, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

int run(int argc, char** argv) {
  CLI::App app("Measures the protocol core between two sessions in memory on one core.");
  double secondsToRun = 1;
  std::string json, only;
  app.add_option("--only", only, "only figures whose names contain this");
  app.add_option("--seconds", secondsToRun, "seconds for each figure")->check(CLI::Range(0.05, 600.0));
  app.add_option("--json", json, "also write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  std::vector<Shape> shapes = {
      {"64 B messages, memory link", 64, 256, 32 * 1024, true},
      {"64 B messages, one at a time", 64, 1, 32 * 1024, true},
      {"64 B messages, network (checksum)", 64, 256, 1472, false},
      {"4 MiB messages, memory link, 32 KiB", 4 << 20, 4, 32 * 1024, true},
      {"4 MiB messages, network, 8972 B", 4 << 20, 4, 8972, false, true},
      {"4 MiB messages, network, 1472 B", 4 << 20, 4, 1472, false, true},
      {"4 MiB, network, 1472 B (checksum)", 4 << 20, 4, 1472, false},
  };
  std::erase_if(shapes, [&](const Shape& shape) { return shape.name.find(only) == std::string::npos; });
  if (shapes.empty()) {
    fmt::print(stderr, "protocol_bench: no figure's name contains '{}'\n", only);
    return 2;
  }
  fmt::print("# {}, commit {}\n", machine(), GLOO_BYPASS_COMMIT);
  fmt::print("{:36} {:>12} {:>10} {:>12} {:>12} {:>8}\n", "", "median ns", "p99 ns", "M packets/s", "M messages/s",
             "GB/s");
  nlohmann::json report = {
      {"machine", machine()}, {"commit", GLOO_BYPASS_COMMIT}, {"figures", nlohmann::json::array()}};
  for (const Shape& shape : shapes) {
    const Figure figure = measure(shape, secondsToRun);
    if (figure.packetsPerSecond == 0) {
      fmt::print(stderr, "protocol_bench: {}: the sessions did not connect\n", shape.name);
      return 1;
    }
    fmt::print("{:36} {:12.1f} {:10.1f} {:12.3f} {:12.3f} {:8.3f}\n", figure.name, figure.medianNanoseconds,
               figure.p99Nanoseconds, figure.packetsPerSecond / 1e6, figure.messagesPerSecond / 1e6,
               figure.bytesPerSecond / 1e9);
    report["figures"].push_back({{"name", figure.name},
                                 {"medianNanosecondsPerPacket", figure.medianNanoseconds},
                                 {"p99NanosecondsPerPacket", figure.p99Nanoseconds},
                                 {"packetsPerSecond", figure.packetsPerSecond},
                                 {"messagesPerSecond", figure.messagesPerSecond},
                                 {"bytesPerSecond", figure.bytesPerSecond}});
  }
  if (json.empty()) return 0;
  const std::string temporary = json + ".tmp";
  {
    std::ofstream file(temporary);
    file << report.dump(2) << '\n';
    if (!file.flush()) {
      fmt::print(stderr, "protocol_bench: cannot write {}\n", temporary);
      std::remove(temporary.c_str());
      return 1;
    }
  }
  if (std::rename(temporary.c_str(), json.c_str()) != 0) {
    fmt::print(stderr, "protocol_bench: cannot rename {} to {}\n", temporary, json);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace gloo_bypass

int main(int argc, char** argv) { return gloo_bypass::run(argc, argv); }
