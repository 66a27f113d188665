// Reads a capture, pcap or pcapng, frame by frame, by libpcap. Owns the file. One owner; reading waits for the disk or
// the pipe.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "tools/capture/dissection.h"
#include "tools/capture/step_windows.h"
#include "transport/base/status.h"

struct pcap;
struct bpf_program;

namespace gloo_bypass::capture {

struct CapturedFrame {
  CaptureTime time{};
  std::span<const std::byte> bytes;  // valid until the next one is read
  std::uint64_t originalLength = 0;
  bool passesFilter = true;
};

// Where and why reading ended early. Everything before it has been read.
struct CaptureFault {
  std::string what;
  std::int64_t offset = -1;  // bytes from the file's beginning, about; -1: not known (a pipe)
  std::uint64_t frames = 0;  // read before
};

class CaptureFile {
 public:
  // `path`: "-" is standard input. `filter`: as tcpdump's, empty for none. The error is one line and names the file.
  static Result<CaptureFile> open(const std::string& path, const std::string& filter);
  // Takes `file`.
  static Result<CaptureFile> open(std::FILE* file, const std::string& name, const std::string& filter);

  // nullopt: the end, or fault().
  std::optional<CapturedFrame> next();
  const std::optional<CaptureFault>& fault() const { return fault_; }
  LinkLayer linkLayer() const { return link_; }
  std::string linkName() const;
  std::uint64_t snapLength() const;

 private:
  struct Close {
    void operator()(pcap* handle) const;
    void operator()(bpf_program* program) const;
  };
  CaptureFile(pcap* handle, LinkLayer link) : handle_(handle), link_(link) {}

  std::unique_ptr<pcap, Close> handle_;
  std::unique_ptr<bpf_program, Close> filter_;
  LinkLayer link_;
  std::uint64_t frames_ = 0;
  std::optional<CaptureFault> fault_;
};

}  // namespace gloo_bypass::capture
