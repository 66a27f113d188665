// What is fuzzed, apart from who feeds it: libFuzzer (fuzz_packet.cc, fuzz_session.cc) or the replay test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gloo_bypass::fuzz {

// The bytes are one datagram: parsed and, by type, decoded; as they are and with its checksums put right.
void fuzzPacket(std::span<const std::uint8_t> input);

// The bytes are a script: a pair of sessions, the user's calls, and a network that delivers, drops, repeats, alters and makes
// up datagrams. Aborts on a broken invariant.
void fuzzSession(std::span<const std::uint8_t> input);

// The bytes are a file, pcap or pcapng: read and analysed as capture_analyser does. Aborts if bytes are lost between the kinds.
void fuzzCapture(std::span<const std::uint8_t> input);

// The bytes are a description of an emulated fabric, and behind a zero byte flags, a line each: parsed, and if accepted, driven through
// its schedule. Aborts on a value out of range, or an error that is not one printable line.
void fuzzDescription(std::span<const std::uint8_t> input);

// Makes both checksums of a datagram right, so that what lies behind them is reached.
void fixChecksums(std::vector<std::byte>& datagram);

}  // namespace gloo_bypass::fuzz
