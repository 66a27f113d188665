// Builds captures byte by byte: frames of each protocol, in pcap and pcapng.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gloo_bypass::capture::test {

using Octets = std::vector<std::uint8_t>;

// Big-endian (network byte order).
void put16(Octets& to, std::uint64_t value);
void put32(Octets& to, std::uint64_t value);
void append(Octets& to, const Octets& bytes);
Octets octets(std::string_view text);

struct Endpoint {
  std::uint32_t address = 0;
  std::uint16_t port = 0;
};
constexpr std::uint32_t host(unsigned last) { return 0x0a200000 + last; }  // 10.32.0.x

Octets tcpSegment(Endpoint from, Endpoint to, std::uint32_t sequence, std::size_t payloadBytes,
                  std::uint8_t flags = 0x10);
Octets udpDatagram(Endpoint from, Endpoint to, const Octets& payload, std::uint16_t identification = 0);
Octets ipv4(Endpoint from, Endpoint to, std::uint8_t protocol, const Octets& inside, std::uint16_t identification = 0,
            std::uint16_t fragment = 0);
Octets ethernet(const Octets& inside, std::uint16_t type = 0x0800);
// `text`: whether the marker's text says which of the two it is.
Octets markerFrame(std::uint64_t step, bool last, bool text = true, std::uint16_t identification = 0);

// Little-endian, as on this machine.
class PcapFile {
 public:
  explicit PcapFile(std::uint32_t linkType = 1, std::uint32_t snapLength = 65535);
  // Cuts the frame to the snap length; `originalLength` 0: the frame's.
  void add(std::uint64_t nanoseconds, const Octets& frame, std::uint32_t originalLength = 0);
  const Octets& bytes() const { return bytes_; }

 private:
  Octets bytes_;
  std::uint32_t snapLength_;
};

class PcapngFile {
 public:
  PcapngFile();
  // `resolution`: digits after the second's point (if_tsresol). Interfaces are numbered from 0.
  void addInterface(std::uint16_t linkType, std::uint8_t resolution, std::uint32_t snapLength = 65535);
  void add(std::uint32_t interface, std::uint64_t ticks, const Octets& frame);
  const Octets& bytes() const { return bytes_; }

 private:
  void block(std::uint32_t type, const Octets& body);
  Octets bytes_;
};

// Writes these bytes to a file in `folder`; returns its path.
std::string writeFile(const std::string& folder, const std::string& name, const Octets& bytes);

}  // namespace gloo_bypass::capture::test
