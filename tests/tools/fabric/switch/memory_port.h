// A port that the test feeds and drains: frames go in and out of vectors.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "tools/fabric/switch/fabric_port.h"

namespace gloo_bypass::fabric {

using Bytes = std::vector<std::byte>;

class MemoryPort final : public FabricPort {
 public:
  std::string describe() const override { return "memory"; }
  bool connected() const override { return attached; }
  void service() override {}
  std::size_t receive(FrameSink& sink, std::size_t maxFrames) override {
    std::size_t count = 0;
    for (; count < maxFrames && !toFabric.empty(); ++count) {
      ++counted.framesIn;
      sink.onFrame(toFabric.front());
      toFabric.pop_front();
    }
    return count;
  }
  std::size_t transmit(std::span<Frame* const> frames) override {
    std::size_t count = 0;
    for (; count < frames.size() && fromFabric.size() < room; ++count) {
      fromFabric.emplace_back(frames[count]->bytes().begin(), frames[count]->bytes().end());
    }
    return count;
  }
  void wakeOnFrames(bool) override {}
  FabricPortCounters counters() const override { return counted; }

  std::deque<Bytes> toFabric;
  std::vector<Bytes> fromFabric;
  std::size_t room = SIZE_MAX;  // frames that fromFabric holds
  bool attached = true;
  FabricPortCounters counted;
};

}  // namespace gloo_bypass::fabric
