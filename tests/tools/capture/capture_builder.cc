#include "tests/tools/capture/capture_builder.h"

#include <algorithm>
#include <fstream>

#include "transport/wire/step_marker.h"

namespace gloo_bypass::capture::test {
namespace {

void put8(Octets& to, std::uint64_t value) { to.push_back(static_cast<std::uint8_t>(value)); }
void little(Octets& to, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) put8(to, value >> (8 * i));
}

}  // namespace

void put16(Octets& to, std::uint64_t value) {
  put8(to, value >> 8);
  put8(to, value);
}
void put32(Octets& to, std::uint64_t value) {
  put16(to, value >> 16);
  put16(to, value);
}
void append(Octets& to, const Octets& bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }
Octets octets(std::string_view text) { return {text.begin(), text.end()}; }

Octets ipv4(Endpoint from, Endpoint to, std::uint8_t protocol, const Octets& inside, std::uint16_t identification,
            std::uint16_t fragment) {
  Octets out;
  put16(out, 0x4500);
  put16(out, 20 + inside.size());
  put16(out, identification);
  put16(out, fragment);
  put8(out, 64);
  put8(out, protocol);
  put16(out, 0);
  put32(out, from.address);
  put32(out, to.address);
  append(out, inside);
  return out;
}

Octets ethernet(const Octets& inside, std::uint16_t type) {
  Octets out(12, 2);
  put16(out, type);
  append(out, inside);
  return out;
}

Octets tcpSegment(Endpoint from, Endpoint to, std::uint32_t sequence, std::size_t payloadBytes, std::uint8_t flags) {
  Octets out;
  put16(out, from.port);
  put16(out, to.port);
  put32(out, sequence);
  put32(out, 0);
  put8(out, 0x50);
  put8(out, flags);
  put16(out, 1000);
  put32(out, 0);
  out.resize(out.size() + payloadBytes);
  return ethernet(ipv4(from, to, 6, out));
}

Octets udpDatagram(Endpoint from, Endpoint to, const Octets& payload, std::uint16_t identification) {
  Octets out;
  put16(out, from.port);
  put16(out, to.port);
  put16(out, 8 + payload.size());
  put16(out, 0);
  append(out, payload);
  return ethernet(ipv4(from, to, 17, out, identification));
}

Octets markerFrame(std::uint64_t step, bool last, bool text, std::uint16_t identification) {
  return udpDatagram({host(2), wire::stepMarkerSourcePort(step)}, {host(1), wire::kStepMarkerPort},
                     text ? octets(wire::stepMarkerText({step, last})) : octets("m"), identification);
}

PcapFile::PcapFile(std::uint32_t linkType, std::uint32_t snapLength) : snapLength_(snapLength) {
  little(bytes_, 0xa1b23c4d, 4);  // nanoseconds
  little(bytes_, 2, 2);
  little(bytes_, 4, 2);
  little(bytes_, 0, 8);
  little(bytes_, snapLength, 4);
  little(bytes_, linkType, 4);
}

void PcapFile::add(std::uint64_t nanoseconds, const Octets& frame, std::uint32_t originalLength) {
  const std::size_t kept = std::min<std::size_t>(frame.size(), snapLength_);
  little(bytes_, nanoseconds / 1'000'000'000, 4);
  little(bytes_, nanoseconds % 1'000'000'000, 4);
  little(bytes_, kept, 4);
  little(bytes_, originalLength == 0 ? frame.size() : originalLength, 4);
  append(bytes_, Octets(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(kept)));
}

PcapngFile::PcapngFile() {
  Octets body;
  little(body, 0x1a2b3c4d, 4);
  little(body, 1, 2);
  little(body, 0, 2);
  little(body, ~std::uint64_t{0}, 8);
  block(0x0a0d0d0a, body);
}

void PcapngFile::block(std::uint32_t type, const Octets& body) {
  const std::size_t padded = (body.size() + 3) / 4 * 4;
  little(bytes_, type, 4);
  little(bytes_, padded + 12, 4);
  append(bytes_, body);
  bytes_.resize(bytes_.size() + padded - body.size());
  little(bytes_, padded + 12, 4);
}

void PcapngFile::addInterface(std::uint16_t linkType, std::uint8_t resolution, std::uint32_t snapLength) {
  Octets body;
  little(body, linkType, 2);
  little(body, 0, 2);
  little(body, snapLength, 4);
  little(body, 9, 2);  // if_tsresol
  little(body, 1, 2);
  little(body, resolution, 4);
  little(body, 0, 4);
  block(1, body);
}

void PcapngFile::add(std::uint32_t interface, std::uint64_t ticks, const Octets& frame) {
  Octets body;
  little(body, interface, 4);
  little(body, ticks >> 32, 4);
  little(body, ticks, 4);
  little(body, frame.size(), 4);
  little(body, frame.size(), 4);
  append(body, frame);
  block(6, body);
}

std::string writeFile(const std::string& folder, const std::string& name, const Octets& bytes) {
  const std::string path = folder + "/" + name;
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return path;
}

}  // namespace gloo_bypass::capture::test
