// Reed-Solomon code over GF(2^8): from repair symbols as many source symbols are recovered, whichever are missing.
// Systematic: the sources themselves travel unchanged. Arithmetic by Intel's ISA-L. Pure; no state but constant tables.
//
//   repair[p] = sum over the sources i of  coefficient(p, i) x source[i]
//   coefficient(p, i) = 1 / ((kMaxSources + p) xor i)
//
// That is a Cauchy matrix: each of its square parts can be inverted. The coefficient does not depend on how many
// sources or repairs there are, so a block may end early: sources that it does not have count as zeros, and repairs
// that are not sent are simply missing.
#pragma once

#include <cstddef>
#include <span>

namespace gloo_bypass {

// Of one block. Their sum is below 2^8, as the field requires.
inline constexpr std::size_t kMaxBlockSources = 128;
inline constexpr std::size_t kMaxBlockRepairs = 32;
// Shorter symbols are filled up with zeros: some of ISA-L's vector code wants as much.
inline constexpr std::size_t kMinSymbolBytes = 64;

// Adds source number `index` to each of `repairs`, which begin as zeros. Symbol: kMinSymbolBytes at least; every repair
// has its length or more.
void addSourceToRepairs(std::size_t index, std::span<const std::byte> symbol, std::span<std::byte* const> repairs);

struct RepairSymbol {
  std::size_t index = 0;  // of the repair
  const std::byte* bytes = nullptr;
};

// sources[i]: the i-th symbol, null where it is missing; every symbol has `length` bytes, kMinSymbolBytes at least.
// recovered[n] takes the n-th missing one. `repairs`: as many as are missing, different ones. False: numbers that do
// not fit together.
bool recoverSources(std::size_t length, std::span<const std::byte* const> sources,
                    std::span<const RepairSymbol> repairs, std::span<std::byte* const> recovered);

}  // namespace gloo_bypass
