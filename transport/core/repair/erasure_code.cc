#include "transport/core/repair/erasure_code.h"

#include <isa-l/erasure_code.h>

#include <array>
#include <cstdint>
#include <vector>

#include "transport/base/check.h"

namespace gloo_bypass {
namespace {

static_assert(kMaxBlockSources + kMaxBlockRepairs <= 255);
// ISA-L expands each coefficient to this for its vector instructions.
constexpr std::size_t kTableBytes = 32;

std::uint8_t coefficient(std::size_t repair, std::size_t source) {
  return gf_inv(static_cast<unsigned char>((kMaxBlockSources + repair) ^ source));
}

// ISA-L takes pointers to what it only reads without const, and bytes as unsigned char.
unsigned char* octets(const std::byte* bytes) {
  return const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes));
}

// What one number makes of any other one, by ISA-L's table of it. Not by its gf_mul: OpenSSL has a function of the same
// name, and the linker takes that one where libcrypto.a is linked in, as in the wheel.
class Multiplier {
 public:
  explicit Multiplier(std::uint8_t factor) { gf_vect_mul_init(factor, table_.data()); }
  // The table has the products with each low and with each high half of a byte.
  std::uint8_t operator()(std::uint8_t other) const {
    return static_cast<std::uint8_t>(table_[other & 15] ^ table_[16 + (other >> 4)]);
  }

 private:
  std::array<unsigned char, kTableBytes> table_;
};

// All coefficients, expanded: a row a repair, so the first rows serve fewer repairs.
std::vector<unsigned char> expandedCoefficients() {
  std::vector<unsigned char> matrix;
  for (std::size_t repair = 0; repair < kMaxBlockRepairs; ++repair) {
    for (std::size_t source = 0; source < kMaxBlockSources; ++source) matrix.push_back(coefficient(repair, source));
  }
  std::vector<unsigned char> tables(kTableBytes * matrix.size());
  ec_init_tables(kMaxBlockSources, kMaxBlockRepairs, matrix.data(), tables.data());
  return tables;
}

// missing = A^-1 (repairs + B present), A and B being the columns of the missing and of the present sources: each row
// of the answer has the coefficients of the present sources first, then those of the repairs.
std::vector<unsigned char> decodingMatrix(std::span<const std::size_t> present, std::span<const std::size_t> missing,
                                          std::span<const RepairSymbol> repairs) {
  const std::size_t count = missing.size(), width = present.size() + count;
  std::vector<unsigned char> a(count * count), inverse(count * count), matrix(count * width);
  for (std::size_t row = 0; row < count; ++row) {
    for (std::size_t column = 0; column < count; ++column) {
      a[row * count + column] = coefficient(repairs[row].index, missing[column]);
    }
  }
  if (gf_invert_matrix(a.data(), inverse.data(), static_cast<int>(count)) != 0) return {};
  for (std::size_t row = 0; row < count; ++row) {
    for (std::size_t i = 0; i < count; ++i) {
      const Multiplier times(inverse[row * count + i]);
      for (std::size_t column = 0; column < present.size(); ++column) {
        matrix[row * width + column] ^= times(coefficient(repairs[i].index, present[column]));
      }
      matrix[row * width + present.size() + i] = inverse[row * count + i];
    }
  }
  return matrix;
}

}  // namespace

void addSourceToRepairs(std::size_t index, std::span<const std::byte> symbol, std::span<std::byte* const> repairs) {
  static std::vector<unsigned char> tables = expandedCoefficients();
  GLOO_BYPASS_CHECK(index < kMaxBlockSources && repairs.size() <= kMaxBlockRepairs && symbol.size() >= kMinSymbolBytes);
  if (repairs.empty()) return;
  std::array<unsigned char*, kMaxBlockRepairs> outputs;
  for (std::size_t i = 0; i < repairs.size(); ++i) outputs[i] = octets(repairs[i]);
  ec_encode_data_update(static_cast<int>(symbol.size()), kMaxBlockSources, static_cast<int>(repairs.size()),
                        static_cast<int>(index), tables.data(), octets(symbol.data()), outputs.data());
}

bool recoverSources(std::size_t length, std::span<const std::byte* const> sources,
                    std::span<const RepairSymbol> repairs, std::span<std::byte* const> recovered) {
  if (sources.size() > kMaxBlockSources || repairs.size() > kMaxBlockRepairs || length < kMinSymbolBytes) return false;
  std::vector<std::size_t> present, missing;
  std::vector<unsigned char*> inputs;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    (sources[i] != nullptr ? present : missing).push_back(i);
    if (sources[i] != nullptr) inputs.push_back(octets(sources[i]));
  }
  if (missing.empty() || missing.size() != repairs.size() || missing.size() != recovered.size()) return false;
  for (const RepairSymbol& repair : repairs) {
    if (repair.index >= kMaxBlockRepairs) return false;
    inputs.push_back(octets(repair.bytes));
  }
  std::vector<unsigned char> matrix = decodingMatrix(present, missing, repairs);
  if (matrix.empty()) return false;
  std::vector<unsigned char> tables(kTableBytes * matrix.size());
  ec_init_tables(static_cast<int>(inputs.size()), static_cast<int>(missing.size()), matrix.data(), tables.data());
  std::array<unsigned char*, kMaxBlockRepairs> outputs;
  for (std::size_t i = 0; i < recovered.size(); ++i) outputs[i] = octets(recovered[i]);
  ec_encode_data(static_cast<int>(length), static_cast<int>(inputs.size()), static_cast<int>(missing.size()),
                 tables.data(), inputs.data(), outputs.data());
  return true;
}

}  // namespace gloo_bypass
