// The capture analyser's fuzz target without a fuzzer: a corpus of small captures, cut and changed with a fixed seed.
#include <gtest/gtest.h>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/replay.h"
#include "tests/sim/settings.h"
#include "tests/tools/capture/capture_builder.h"
#include "tests/tools/capture/operation_frames.h"
#include "tools/simulation/core/random.h"

namespace gloo_bypass::fuzz {
namespace {

using capture::test::Octets;

// A step with a frame of each protocol, as pcap and as pcapng.
std::vector<Octets> captures() {
  namespace make = capture::test;
  const make::Endpoint a{make::host(2), 1}, b{make::host(3), 4791};
  make::OperationSender sender(a, b, 1);
  const std::vector<Octets> frames{make::markerFrame(1, false),
                                   make::tcpSegment(a, b, 1, 40),
                                   make::udpDatagram(a, b, Octets(60, 0x0a)),
                                   make::udpDatagram(b, a, {'g', 'B', 1, 16}),
                                   make::ethernet(Octets(28), 0x0806),
                                   sender.header(1, {}, 10),
                                   sender.message(1, 1, 20, 40),
                                   sender.chunk(2, 20),
                                   make::markerFrame(1, true)};
  make::PcapFile pcap, cooked(113);
  make::PcapngFile pcapng;
  pcapng.addInterface(1, 6);
  pcapng.addInterface(1, 9);
  for (std::size_t i = 0; i < frames.size(); ++i) {
    pcap.add(i * 1'000'000, frames[i]);
    cooked.add(i * 1'000'000, frames[i]);
    pcapng.add(static_cast<std::uint32_t>(i % 2), i * 1'000'000, frames[i]);
  }
  return {pcap.bytes(), cooked.bytes(), pcapng.bytes()};
}

TEST(FuzzReplay, CaptureCorpus_IsHandled) { replay("capture", fuzzCapture, 3); }

TEST(FuzzReplay, CapturesCutAndChanged_AreHandled) {
  const std::vector<Octets> inputs = captures();
  for (const Octets& input : inputs) fuzzCapture(input);
  sim::forEachSeed(10'000, 1, [&](std::uint64_t seed) {
    sim::Random random(seed);
    Octets input = inputs[random.below(inputs.size())];
    for (std::uint64_t i = 1 + random.below(8); i > 0; --i)
      input[random.below(input.size())] = static_cast<std::uint8_t>(random.next());
    if (random.chance(0.2)) input.resize(random.below(input.size() + 1));
    fuzzCapture(input);
  });
}

}  // namespace
}  // namespace gloo_bypass::fuzz
