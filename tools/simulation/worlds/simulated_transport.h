// Message channels over the hosts of a world, for what stands on channels (collectives/network). As a transport over
// sessions does: the end of a session is told after everything that came before it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tools/simulation/core/host.h"
#include "tools/simulation/core/simulation.h"
#include "transport/channel/message_channel.h"

namespace gloo_bypass::sim {

class SimulatedTransport final : public Transport {
 public:
  // `hosts`: by the peer's rank; null where there is none. `afterEvents` runs after a channel's observer was called; it
  // must not call the channel.
  SimulatedTransport(Simulation& simulation, std::vector<Host*> hosts, std::function<void()> afterEvents)
      : simulation_(simulation), hosts_(std::move(hosts)), afterEvents_(std::move(afterEvents)) {}

  // Nobody waits in virtual time.
  [[noreturn]] ProgressEngine& progress() override;
  std::string describe() const override { return "a simulated network"; }
  // To options.peerRank. Its session is the world's to connect.
  Result<std::unique_ptr<MessageChannel>> openChannel(const ChannelOptions& options,
                                                      ChannelObserver* observer) override;
  TransportReport report() const override { return {}; }

 private:
  Simulation& simulation_;
  const std::vector<Host*> hosts_;
  const std::function<void()> afterEvents_;
};

}  // namespace gloo_bypass::sim
