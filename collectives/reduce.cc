#include "collectives/reduce.h"

#include <array>

#include "collectives/reduce_kernels.h"
#ifdef __x86_64__
#include <cpuid.h>
#include <xmmintrin.h>
#endif

namespace gloo_bypass::collectives {

extern const ReduceKernels kReduceKernelsBaseline;
#ifdef __x86_64__
extern const ReduceKernels kReduceKernelsAvx2;
extern const ReduceKernels kReduceKernelsAvx512;
#endif

namespace {

struct Runnable {
  std::array<const ReduceKernels*, 3> sets{&kReduceKernelsBaseline};
  std::size_t size = 1;
};

Runnable runnable() noexcept {
  Runnable found;
#ifdef __x86_64__
  // What collectives/meson.build compiles the sets for. Clang 14's __builtin_cpu_supports does not know F16C.
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool halves = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  if (halves && __builtin_cpu_supports("avx2")) {
    found.sets[found.size++] = &kReduceKernelsAvx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
      found.sets[found.size++] = &kReduceKernelsAvx512;
    }
  }
#endif
  return found;
}

ReduceKernel kernelOf(Reduction reduction, ElementType type) {
  static const ReduceKernels& fastest = *runnableReduceKernels().back();
  return fastest.kernels[static_cast<std::size_t>(reduction)][static_cast<std::size_t>(type)];
}

// While it lives this thread neither flushes subnormal numbers to zero nor takes them for it. Threads may have been
// told to, as by torch.set_flush_denormal, and which of them adds depends on timing.
class SubnormalsKept {
 public:
#ifdef __x86_64__
  SubnormalsKept() : before_(_mm_getcsr()) {
    if ((before_ & kFlags) != 0) _mm_setcsr(before_ & ~kFlags);
  }
  ~SubnormalsKept() {
    if ((before_ & kFlags) != 0) _mm_setcsr(before_);
  }

 private:
  static constexpr unsigned kFlags = 0x8040;  // flush to zero, denormals are zero
  const unsigned before_;
#else
  SubnormalsKept() {}
#endif
  SubnormalsKept(const SubnormalsKept&) = delete;
  SubnormalsKept& operator=(const SubnormalsKept&) = delete;
};

}  // namespace

std::span<const ReduceKernels* const> runnableReduceKernels() {
  static const Runnable found = runnable();
  return std::span(found.sets).first(found.size);
}

void reduce(Reduction reduction, ElementType type, std::byte* output, std::span<const std::byte* const> inputs,
            std::size_t count, int ranks) {
  const SubnormalsKept kept;
  kernelOf(reduction, type)(output, inputs.data(), inputs.size(), count, ranks);
}

void finish(Reduction reduction, ElementType type, std::byte* values, std::size_t count, int ranks) {
  if (reduction != Reduction::kAverage) return;
  const std::byte* const inputs[] = {values};
  const SubnormalsKept kept;
  kernelOf(reduction, type)(values, inputs, 1, count, ranks);
}

}  // namespace gloo_bypass::collectives
