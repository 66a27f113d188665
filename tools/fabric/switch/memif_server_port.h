// A port of the fabric that is the server of a memif socket. One client at a time: when it ends, what it had sent is
// still taken, and another may come.
//
// Thread: the switch's. The client may write to the shared memory at any time; nothing in it is trusted
// (memif_memory.h).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tools/fabric/switch/fabric_port.h"
#include "transport/base/status.h"
#include "transport/dpdk/memif_handshake.h"
#include "transport/dpdk/memif_ring.h"

namespace gloo_bypass::fabric {

class MemifServerPort final : public FabricPort {
 public:
  // Listens at `path`, an absolute one, until destroyed. Descriptors go into `epoll`, which must outlive the port.
  // Errors: the socket is another process's, or cannot be made. A dead process's socket is replaced.
  static Result<std::unique_ptr<MemifServerPort>> create(const std::string& path, std::size_t longestFrame, int epoll);
  ~MemifServerPort() override;

  std::string describe() const override { return "memif " + path_; }
  bool connected() const override { return link_.has_value(); }
  void service() override;
  std::size_t receive(FrameSink& sink, std::size_t maxFrames) override;
  std::size_t transmit(std::span<Frame* const> frames) override;
  void wakeOnFrames(bool wanted) override;

 private:
  struct Link {
    explicit Link(std::unique_ptr<dpdk::MemifMemory> shared)
        : memory(std::move(shared)),
          received(*memory, dpdk::MemifRole::kServer),
          toSend(*memory, dpdk::MemifRole::kServer) {}
    std::unique_ptr<dpdk::MemifMemory> memory;
    dpdk::MemifReceiveRing received;
    dpdk::MemifSendRing toSend;
    FileDescriptor events;
  };

  MemifServerPort(std::string path, std::size_t longestFrame, int epoll)
      : FabricPort(longestFrame), path_(std::move(path)), epoll_(epoll) {}
  void acceptClients();
  void hearClient();
  void establish();
  void closeClient(const std::string& reason);
  void closeForBrokenRing();

  const std::string path_;
  const int epoll_;
  FileDescriptor listener_;
  FileDescriptor client_;
  std::optional<dpdk::MemifServerHandshake> handshake_;  // while client_ is open
  std::optional<Link> link_;
  bool wakeWanted_ = false;
  bool hungUp_ = false;  // the client has gone; its ring is not empty yet
};

}  // namespace gloo_bypass::fabric
