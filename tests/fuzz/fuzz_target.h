// The fuzz targets. libFuzzer (fuzzer.cc) or the replay tests feed them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gloo_bypass::fuzz {

// The bytes are one datagram: parsed and, by type, decoded; as they are and with corrected checksums.
void fuzzPacket(std::span<const std::uint8_t> input);

// The bytes are a script: a pair of sessions, the user's calls, and a network that delivers, drops, repeats, alters and
// invents datagrams. Aborts on a broken invariant.
void fuzzSession(std::span<const std::uint8_t> input);

// The same for a pair with two or three paths each: a lead and its rails.
void fuzzRails(std::span<const std::uint8_t> input);

// The same over sealed datagrams, with one path or two: a stranger alters what travels, a peer what it seals. Aborts,
// too, if a datagram opens that nobody has sealed, or gives other bytes.
void fuzzSealed(std::span<const std::uint8_t> input);

// The bytes are a pcap or pcapng file: read and analysed as capture_analyser does. Aborts if the kinds of bytes do not
// add up to the total.
void fuzzCapture(std::span<const std::uint8_t> input);

// The bytes are a description of an emulated fabric; after a zero byte flags, one a line: parsed, and if accepted,
// driven through its schedule. Aborts on a value out of range, or an error that is not one printable line.
void fuzzDescription(std::span<const std::uint8_t> input);

// The bytes are an Ethernet frame: parsed, as it is and with a corrected IPv4 checksum, and passed to a neighbour
// table. Aborts if a part lies outside, or the table learns a hop that it did not ask for.
void fuzzFrame(std::span<const std::uint8_t> input);

// The bytes are a peer's message over a queue pair. Aborts if encoding the decoded message does not give the same
// bytes.
void fuzzRdmaFrame(std::span<const std::uint8_t> input);

// The bytes are a rank's address in the rendezvous store, or a part of one, of any kind. Aborts if encoding the decoded
// address does not give the same bytes, or if an error is not printable.
void fuzzAddress(std::span<const std::uint8_t> input);

// The bytes are a script: a memif client's messages and descriptors, then its writes to the shared memory.
void fuzzMemif(std::span<const std::uint8_t> input);

// The bytes are a safetensors file. Aborts if a tensor lies outside, or if an error is not one printable line.
void fuzzSafetensors(std::span<const std::uint8_t> input);

// The bytes are a model's config.json. Aborts if it gives sizes of no model, or if an error is not one printable line.
void fuzzConfig(std::span<const std::uint8_t> input);

// The bytes are edits of a correct folder of tokenised text. Aborts if a token is read that is none, or if an error is
// not one printable line.
void fuzzShards(std::span<const std::uint8_t> input);

// The bytes are a table of algorithms, or names of some. Aborts if there is nothing to choose, or if an error is not
// one printable line.
void fuzzChoices(std::span<const std::uint8_t> input);

// The bytes are what another rank publishes or sends for a group of our own collectives: its card, its channels'
// addresses, an operation's header, a control message. Aborts if encoding the decoded one gives another, or if a text
// is not one printable line.
void fuzzCollectives(std::span<const std::uint8_t> input);

// The bytes are a key file. Aborts if another key is read than it has, or if an error shows anything of it.
void fuzzKeyFile(std::span<const std::uint8_t> input);

// The bytes are edits of a peer's offer of keys and of its address. Aborts if one is accepted that nobody with the key
// has proven, or if two ranks get different keys.
void fuzzOffer(std::span<const std::uint8_t> input);

// The bytes are a put, a get, an answer to one, or the text of a remote key. Aborts if encoding the decoded one does
// not give the same.
void fuzzRemoteMessage(std::span<const std::uint8_t> input);

// The bytes are a script: a peer that says anything about puts and gets, and what the program under test puts and gets
// itself. Aborts if a byte outside the buffers changes.
void fuzzRemote(std::span<const std::uint8_t> input);

// The bytes are a script: peers and strangers of RDMA's control connection, the user's calls, and time. Aborts if an
// observer is called that is not there, or if an honest peer cannot connect afterwards.
void fuzzControl(std::span<const std::uint8_t> input);

// The bytes are a script: clients and strangers of the benchmark's key/value store. Aborts if a client that keeps the
// rules does not get what it has set.
void fuzzStore(std::span<const std::uint8_t> input);

// Corrects both checksums of a datagram, so that the code behind them is reached.
void fixChecksums(std::vector<std::byte>& datagram);

}  // namespace gloo_bypass::fuzz
