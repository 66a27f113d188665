// Compiled once for each instruction set (meson.build), with GLOO_BYPASS_REDUCE_TABLE naming the table and
// GLOO_BYPASS_REDUCE_SET the set. What one set emits must not be linked into another: everything but the table has
// internal linkage, and no function of the standard library is called.
//
// The compiler's vector extensions carry the loops, so one text serves vectors of every width and single elements, and
// all have the same bits. Three things would make a difference, and are excluded: contraction to fused multiply-adds
// (-ffp-contract=off), payloads of NaNs (the compiler may swap operands of an addition; a NaN is stored in one
// canonical form), and a conversion that depends on the processor's flush-to-zero flags.
//
// Not used: Highway 1.0 (Debian 12) truncates to bf16 and leaves NaNs in min and max to the processor; xsimd 8 has
// neither fp16 nor dispatch; target_clones needs ifuncs, which break under sanitizers, and clones no templates.
#include "collectives/reduce_kernels.h"

#include <cstdint>
#include <type_traits>
#ifdef __F16C__
#include <immintrin.h>
#endif

namespace gloo_bypass::collectives {
namespace {

#define INLINE [[gnu::always_inline]] inline

#if defined(__AVX512F__) && defined(__AVX512BW__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;  // SSE2, Neon
#endif
constexpr int kSmallestVectorBytes = 16;
// Vectors of one input before the next input's turn. Their sums stay in registers until all inputs are in. This was
// 1.3 to 2.1 times faster than sums in a block of 4 to 32 KiB in the L1 cache, for 4 to 16 inputs of 64 MiB; 8 vectors,
// and prefetching, gained nothing.
constexpr int kUnrolled = 4;

// kLanes elements; one lane is a plain T, on which the same operators work.
template <typename T, int kLanes>
struct Lanes {
  typedef T Vector __attribute__((vector_size(sizeof(T) * kLanes)));
};
template <typename T>
struct Lanes<T, 1> {
  using Vector = T;
};
template <typename T, int kLanes>
using Vector = typename Lanes<T, kLanes>::Vector;

template <typename V>
INLINE V read(const std::byte* from) {
  V value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
template <typename V>
INLINE void write(std::byte* to, V value) {
  __builtin_memcpy(to, &value, sizeof value);
}

template <typename T, typename V>
INLINE V canonical(V value) {
  return value == value ? value : V{} + static_cast<T>(__builtin_nan(""));
}

// How elements lie in memory, and the type in which they are reduced. A format turns a vector of memory into `parts`
// vectors of values and back; which element is in which part does not matter.
template <typename V, int kParts>
struct Group {
  V parts[kParts];
};

template <typename T>
struct Plain {
  using Value = T;
  static constexpr std::size_t kBytes = sizeof(T);
  static constexpr int kParts = 1;
  template <int kLanes>
  INLINE static Group<Vector<T, kLanes>, 1> load(const std::byte* from) {
    return {{read<Vector<T, kLanes>>(from)}};
  }
  template <int kLanes>
  INLINE static void store(std::byte* to, const Group<Vector<T, kLanes>, 1>& group) {
    if constexpr (std::is_floating_point_v<T>) {
      write(to, canonical<T>(group.parts[0]));
    } else {
      write(to, group.parts[0]);
    }
  }
};

struct Bool : Plain<std::uint8_t> {
  template <int kLanes>
  INLINE static Group<Vector<Value, kLanes>, 1> load(const std::byte* from) {
    using V = Vector<Value, kLanes>;
    const V value = read<V>(from), none{};
    return {{static_cast<V>(value != none ? none + Value{1} : none)}};
  }
};

template <int kLanes>
using Bits = Vector<std::uint32_t, kLanes>;
template <int kLanes>
using Floats = Vector<float, kLanes>;
template <int kLanes>
INLINE Floats<kLanes> floatsOf(Bits<kLanes> bits) {
  return __builtin_bit_cast(Floats<kLanes>, bits);
}
template <int kLanes>
INLINE Bits<kLanes> bitsOf(Floats<kLanes> value) {
  return __builtin_bit_cast(Bits<kLanes>, value);
}

// Two bytes an element, reduced in float. A vector of 32-bit words is two vectors of floats, of the words' lower and
// upper halves: no shuffle is needed. Encoding::widened takes 16 bits in the lower half of each word, and narrowed
// returns them so.
template <typename Encoding>
struct Halves {
  using Value = float;
  static constexpr std::size_t kBytes = 2;
  static constexpr int kParts = 2;

  template <int kLanes>
  INLINE static auto load(const std::byte* from) {
    if constexpr (kLanes == 1) {
      return Group<float, 1>{{Encoding::template widened<1>(read<std::uint16_t>(from))}};
    } else {
      const auto words = read<Bits<kLanes>>(from);
      return Group<Floats<kLanes>, 2>{
          {Encoding::template widened<kLanes>(words & 0xffffu), Encoding::template widened<kLanes>(words >> 16)}};
    }
  }
  template <int kLanes, int kParts>
  INLINE static void store(std::byte* to, const Group<Floats<kLanes>, kParts>& group) {
    const auto low = Encoding::template narrowed<kLanes>(group.parts[0]);
    if constexpr (kLanes == 1) {
      write(to, static_cast<std::uint16_t>(low));
    } else {
      write(to, low | Encoding::template narrowed<kLanes>(group.parts[1]) << 16);
    }
  }
};

struct Bfloat16Encoding {
  template <int kLanes>
  INLINE static Floats<kLanes> widened(Bits<kLanes> stored) {
    return floatsOf<kLanes>(stored << 16);
  }
  // To nearest even: a carry out of the mantissa goes into the exponent, as it should.
  template <int kLanes>
  INLINE static Bits<kLanes> narrowed(Floats<kLanes> value) {
    const Bits<kLanes> bits = bitsOf<kLanes>(value), none{};
    const Bits<kLanes> rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return value == value ? rounded : none + 0x7fc0u;
  }
};
using Bfloat16 = Halves<Bfloat16Encoding>;

// After F. Giesen's "Float->half variants" (2016). Its additions see no subnormal float but those that round to zero
// anyway, so the processor's flush-to-zero flags do not matter.
struct Float16Encoding {
  static constexpr std::uint32_t kSmallestNormal = (127 - 14) << 23;            // 2^-14, as a float
  static constexpr std::uint32_t kRoundsSubnormal = (127 - 15 + 13 + 1) << 23;  // its last bit is 2^-24
  static constexpr std::uint32_t kInfinity = (127 + 16) << 23;                  // 2^16
  static constexpr std::uint32_t kBias = (127 - 15) << 23;

  template <int kLanes>
  INLINE static Floats<kLanes> widened(Bits<kLanes> stored) {
    const Bits<kLanes> sign = (stored & 0x8000u) << 16, rest = (stored & 0x7fffu) << 13, none{};
    const Bits<kLanes> normal = rest + kBias;
    const Bits<kLanes> subnormal =
        bitsOf<kLanes>(floatsOf<kLanes>(rest + kSmallestNormal) - floatsOf<kLanes>(none + kSmallestNormal));
    const Bits<kLanes> infinite = rest + 2 * kBias;  // NaN too
    const Bits<kLanes> finite = isLess<kLanes>(rest, 0x0400u << 13) ? subnormal : normal;
    return floatsOf<kLanes>(sign | (isLess<kLanes>(rest, 0x7c00u << 13) ? finite : infinite));
  }
  template <int kLanes>
  INLINE static Bits<kLanes> narrowed(Floats<kLanes> value) {
    const Bits<kLanes> bits = bitsOf<kLanes>(value), rest = bits & 0x7fffffffu, none{};
    const Bits<kLanes> normal = (rest - kBias + 0xfffu + ((rest >> 13) & 1u)) >> 13;
    const Bits<kLanes> magic = none + kRoundsSubnormal;
    const Bits<kLanes> subnormal = bitsOf<kLanes>(floatsOf<kLanes>(rest) + floatsOf<kLanes>(magic)) - magic;
    const Bits<kLanes> finite = isLess<kLanes>(rest, kSmallestNormal) ? subnormal : normal;
    const Bits<kLanes> half = isLess<kLanes>(rest, kInfinity) ? finite : none + 0x7c00u;
    return value == value ? half | ((bits >> 16) & 0x8000u) : none + 0x7e00u;
  }

 private:
  // Signed: SSE2 and AVX2 compare no others. Neither has the upper bit.
  template <int kLanes>
  INLINE static auto isLess(Bits<kLanes> bits, std::uint32_t limit) {
    return __builtin_bit_cast(Vector<std::int32_t, kLanes>, bits) < static_cast<std::int32_t>(limit);
  }
};

#ifdef __F16C__
// The processor converts.
struct Float16 {
  using Value = float;
  static constexpr std::size_t kBytes = 2;
  static constexpr int kParts = 1;
  static constexpr int kToNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

  template <int kLanes>
  INLINE static Group<Floats<kLanes>, 1> load(const std::byte* from) {
    Floats<kLanes> value;
    if constexpr (kLanes == 1) {
      value = _cvtsh_ss(read<std::uint16_t>(from));
    } else if constexpr (kLanes == 4) {
      value = Floats<4>(_mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
    } else if constexpr (kLanes == 8) {
      value = Floats<8>(_mm256_cvtph_ps(read<__m128i>(from)));
    } else {
#ifdef __AVX512F__
      value = Floats<16>(_mm512_cvtph_ps(read<__m256i>(from)));
#endif
    }
    // Clang would compare the 16-bit numbers instead, one by one: 50 times slower.
    asm("" : "+v"(value));
    return {{value}};
  }
  template <int kLanes>
  INLINE static void store(std::byte* to, const Group<Floats<kLanes>, 1>& group) {
    const Floats<kLanes> value = canonical<float>(group.parts[0]);
    if constexpr (kLanes == 1) {
      write(to, static_cast<std::uint16_t>(__extension__ _cvtss_sh(value, kToNearest)));
    } else if constexpr (kLanes == 4) {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to), __extension__ _mm_cvtps_ph(__m128(value), kToNearest));
    } else if constexpr (kLanes == 8) {
      write(to, __extension__ _mm256_cvtps_ph(__m256(value), kToNearest));
    } else {
#ifdef __AVX512F__
      write(to, __extension__ _mm512_cvtps_ph(__m512(value), kToNearest));
#endif
    }
  }
};
#else
using Float16 = Halves<Float16Encoding>;
#endif

// One step of a reduction. Integers are unsigned where the sign does not matter: they wrap.
struct Sum {
  template <typename V>
  INLINE static V of(V a, V b) {
    return static_cast<V>(a + b);
  }
};
struct Product {
  template <typename V>
  INLINE static V of(V a, V b) {
    return static_cast<V>(a * b);
  }
  // A product of two such would be one of ints, and could overflow.
  INLINE static std::uint16_t of(std::uint16_t a, std::uint16_t b) {
    return static_cast<std::uint16_t>(static_cast<unsigned>(a) * b);
  }
};
// `a` if they are equal (zeros may differ in sign); NaN if either is. No integer differs from itself.
struct Min {
  template <typename V>
  INLINE static V of(V a, V b) {
    return ((b < a) | (b != b)) ? b : a;
  }
};
struct Max {
  template <typename V>
  INLINE static V of(V a, V b) {
    return ((b > a) | (b != b)) ? b : a;
  }
};
struct And {
  template <typename V>
  INLINE static V of(V a, V b) {
    return static_cast<V>(a & b);
  }
};
struct Or {
  template <typename V>
  INLINE static V of(V a, V b) {
    return static_cast<V>(a | b);
  }
};
struct Xor {
  template <typename V>
  INLINE static V of(V a, V b) {
    return static_cast<V>(a ^ b);
  }
};

struct Operands {
  std::byte* output;
  const std::byte* const* inputs;
  std::size_t inputCount;
};

// Reduces blocks of kVectors vectors while they fit before `count`; returns where it stopped. All inputs of a block are
// read before it is written: the output may be one of them.
template <typename Format, typename Operation, bool kDivides, int kInputs, int kVectors, int kLanes>
INLINE std::size_t reduceBlocks(const Operands& operands, std::size_t first, std::size_t count,
                                typename Format::Value divisor) {
  constexpr int kParts = kLanes == 1 ? 1 : Format::kParts;
  constexpr std::size_t kStep = kParts * kLanes, kBlock = kVectors * kStep;  // elements
  const std::size_t inputCount = kInputs > 0 ? kInputs : operands.inputCount;
  const std::byte* const near[2] = {operands.inputs[0], operands.inputs[kInputs == 2 ? 1 : 0]};
  for (; count - first >= kBlock; first += kBlock) {
    const std::size_t offset = first * Format::kBytes;
    Group<Vector<typename Format::Value, kLanes>, kParts> sums[kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      sums[i] = Format::template load<kLanes>(near[0] + offset + i * kStep * Format::kBytes);
    }
    for (std::size_t input = 1; input < inputCount; ++input) {
      const std::byte* const from = (kInputs == 2 ? near[1] : operands.inputs[input]) + offset;
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) {
        const auto values = Format::template load<kLanes>(from + i * kStep * Format::kBytes);
        for (int part = 0; part < kParts; ++part) {
          sums[i].parts[part] = Operation::of(sums[i].parts[part], values.parts[part]);
        }
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      if constexpr (kDivides) {
        for (auto& part : sums[i].parts) part = part / divisor;
      }
      Format::template store<kLanes>(operands.output + offset + i * kStep * Format::kBytes, sums[i]);
    }
  }
  return first;
}

template <typename Format, typename Operation, bool kDivides, int kInputs>
INLINE void reduceAll(const Operands& operands, std::size_t count, typename Format::Value divisor) {
  constexpr int kWide = kVectorBytes / sizeof(typename Format::Value);
  constexpr int kSmallest = kSmallestVectorBytes / sizeof(typename Format::Value);
  std::size_t done = 0;
  done = reduceBlocks<Format, Operation, kDivides, kInputs, kUnrolled, kWide>(operands, done, count, divisor);
  done = reduceBlocks<Format, Operation, kDivides, kInputs, 1, kWide>(operands, done, count, divisor);
  if constexpr (kWide > 2 * kSmallest) {
    done = reduceBlocks<Format, Operation, kDivides, kInputs, 1, kWide / 2>(operands, done, count, divisor);
  }
  if constexpr (kWide > kSmallest) {
    done = reduceBlocks<Format, Operation, kDivides, kInputs, 1, kSmallest>(operands, done, count, divisor);
  }
  reduceBlocks<Format, Operation, kDivides, kInputs, 1, 1>(operands, done, count, divisor);
}

template <typename Format, typename Operation, bool kDivides = false>
void kernel(std::byte* output, const std::byte* const* inputs, std::size_t inputCount, std::size_t count, int ranks) {
  const Operands operands{output, inputs, inputCount};
  const auto divisor = static_cast<typename Format::Value>(ranks);
  if (inputCount == 2) {
    reduceAll<Format, Operation, kDivides, 2>(operands, count, divisor);
  } else {
    reduceAll<Format, Operation, kDivides, 0>(operands, count, divisor);
  }
}

// A row of the table: the types in the order of ElementType.
template <typename Operation>
constexpr void fillIntegers(ReduceKernel (&row)[kElementTypes]) {
  row[1] = row[2] = kernel<Plain<std::uint8_t>, Operation>;
  row[3] = kernel<Plain<std::uint16_t>, Operation>;
  row[4] = kernel<Plain<std::uint32_t>, Operation>;
  row[5] = kernel<Plain<std::uint64_t>, Operation>;
}
template <typename Operation>
constexpr void fillOrdered(ReduceKernel (&row)[kElementTypes]) {
  row[1] = kernel<Plain<std::uint8_t>, Operation>;
  row[2] = kernel<Plain<std::int8_t>, Operation>;
  row[3] = kernel<Plain<std::int16_t>, Operation>;
  row[4] = kernel<Plain<std::int32_t>, Operation>;
  row[5] = kernel<Plain<std::int64_t>, Operation>;
}
template <typename Operation, bool kDivides = false>
constexpr void fillFloats(ReduceKernel (&row)[kElementTypes]) {
  row[6] = kernel<Float16, Operation, kDivides>;
  row[7] = kernel<Bfloat16, Operation, kDivides>;
  row[8] = kernel<Plain<float>, Operation, kDivides>;
  row[9] = kernel<Plain<double>, Operation, kDivides>;
}

constexpr ReduceKernels table() {
  ReduceKernels made{GLOO_BYPASS_REDUCE_SET, {}};
  auto& [sum, average, product, min, max, bitAnd, bitOr, bitXor] = made.kernels;
  fillIntegers<Sum>(sum), fillFloats<Sum>(sum);
  fillFloats<Sum, true>(average);
  fillIntegers<Product>(product), fillFloats<Product>(product);
  fillOrdered<Min>(min), fillFloats<Min>(min);
  fillOrdered<Max>(max), fillFloats<Max>(max);
  fillIntegers<And>(bitAnd), fillIntegers<Or>(bitOr), fillIntegers<Xor>(bitXor);
  product[0] = min[0] = bitAnd[0] = kernel<Bool, And>;
  sum[0] = max[0] = bitOr[0] = kernel<Bool, Or>;
  bitXor[0] = kernel<Bool, Xor>;
  return made;
}

}  // namespace

extern const ReduceKernels GLOO_BYPASS_REDUCE_TABLE;
constinit const ReduceKernels GLOO_BYPASS_REDUCE_TABLE = table();

}  // namespace gloo_bypass::collectives
