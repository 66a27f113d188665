// What is fuzzed, apart from who feeds it: libFuzzer (fuzzer.cc) or the replay tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gloo_bypass::fuzz {

// The bytes are one datagram: parsed and, by type, decoded; as they are and with its checksums put right.
void fuzzPacket(std::span<const std::uint8_t> input);

// The bytes are a script: a pair of sessions, the user's calls, and a network that delivers, drops, repeats, alters and
// makes up datagrams. Aborts on a broken invariant.
void fuzzSession(std::span<const std::uint8_t> input);

// The bytes are a file, pcap or pcapng: read and analysed as capture_analyser does. Aborts if bytes are lost between
// the kinds.
void fuzzCapture(std::span<const std::uint8_t> input);

// The bytes are a description of an emulated fabric, and behind a zero byte flags, a line each: parsed, and if
// accepted, driven through its schedule. Aborts on a value out of range, or an error that is not one printable line.
void fuzzDescription(std::span<const std::uint8_t> input);

// The bytes are an Ethernet frame: parsed, as it is and with its IPv4 checksum put right, and handed to a table of
// neighbours. Aborts if a part lies outside, or the table learns what it did not ask for.
void fuzzFrame(std::span<const std::uint8_t> input);

// The bytes are what a peer sent over a queue pair. Aborts if what was understood is not written as it was.
void fuzzRdmaFrame(std::span<const std::uint8_t> input);

// The bytes are a rank's address in the rendezvous store, or a part of one, of any kind. Aborts if what was understood
// is not written as it was, or on an error that is not printable.
void fuzzAddress(std::span<const std::uint8_t> input);

// The bytes are a script: a memif client's messages and descriptors, then what it does to the shared memory.
void fuzzMemif(std::span<const std::uint8_t> input);

// Makes both checksums of a datagram right, so that what lies behind them is reached.
void fixChecksums(std::vector<std::byte>& datagram);

}  // namespace gloo_bypass::fuzz
