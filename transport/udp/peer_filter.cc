#include "transport/udp/peer_filter.h"

#include <algorithm>
#include <cstdint>

#include "transport/base/check.h"

namespace gloo_bypass::udp {
namespace {

// 2^32 divided by the golden ratio: neighbouring addresses and ports get different keys.
constexpr std::uint32_t kFactor = 2'654'435'761u;
// In the IP header, which precedes what the filter sees, and in the UDP header, with which that begins.
constexpr std::uint32_t kSourceV4 = static_cast<std::uint32_t>(SKF_NET_OFF) + 12,
                        kSourceV6 = static_cast<std::uint32_t>(SKF_NET_OFF) + 8, kSourcePort = 0;
constexpr std::size_t kWordBytes = 4, kWordsV6 = 4;
constexpr std::uint32_t kAllBytes = 0xffff'ffff;

std::uint32_t keyOf(network::Endpoint peer) {
  std::uint32_t key = 0;
  for (auto ip = peer.ip(); !ip.empty(); ip = ip.subspan(kWordBytes)) {
    std::uint32_t word = 0;
    std::memcpy(&word, ip.data(), kWordBytes);
    key = (key + ntohl(word)) * kFactor;
  }
  return key + peer.port();
}

// Accumulator: the key of the datagram's source, as keyOf() computes it.
void loadKey(std::vector<sock_filter>& program, bool v6) {
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, v6 ? kSourceV6 : kSourceV4));
  program.push_back(BPF_STMT(BPF_ALU | BPF_MUL | BPF_K, kFactor));
  for (std::size_t word = 1; v6 && word < kWordsV6; ++word) {
    program.push_back(BPF_STMT(BPF_MISC | BPF_TAX, 0));
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(kSourceV6 + word * kWordBytes)));
    program.push_back(BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0));
    program.push_back(BPF_STMT(BPF_ALU | BPF_MUL | BPF_K, kFactor));
  }
  program.push_back(BPF_STMT(BPF_MISC | BPF_TAX, 0));
  program.push_back(BPF_STMT(BPF_LD | BPF_H | BPF_ABS, kSourcePort));
  program.push_back(BPF_STMT(BPF_ALU | BPF_ADD | BPF_X, 0));
}

// Passes if `keys`, which are sorted, have the accumulator: halves them until one is left.
void search(std::vector<sock_filter>& program, std::span<const std::uint32_t> keys) {
  if (keys.size() <= 1) {
    if (!keys.empty()) {
      program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, keys.front(), 0, 1));
      program.push_back(BPF_STMT(BPF_RET | BPF_K, kAllBytes));
    }
    program.push_back(BPF_STMT(BPF_RET | BPF_K, 0));
    return;
  }
  const auto lower = keys.first(keys.size() / 2), upper = keys.subspan(keys.size() / 2);
  // A conditional jump reaches 255 instructions, the other one all.
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, upper.front(), 0, 1));
  program.push_back(BPF_STMT(BPF_JMP | BPF_JA, 0));
  const std::size_t jump = program.size() - 1;
  search(program, lower);
  program[jump].k = static_cast<std::uint32_t>(program.size() - jump - 1);
  search(program, upper);
}

}  // namespace

std::vector<sock_filter> peerFilter(std::span<const network::Endpoint> peers, bool v6) {
  GLOO_BYPASS_CHECK(peers.size() <= kMostFilteredPeers);
  std::vector<std::uint32_t> keys;
  for (const network::Endpoint& peer : peers) keys.push_back(keyOf(peer));
  std::ranges::sort(keys);
  std::vector<sock_filter> program;
  loadKey(program, v6);
  search(program, keys);
  return program;
}

}  // namespace gloo_bypass::udp
