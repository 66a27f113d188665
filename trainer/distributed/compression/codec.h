// Codes of one tensor that each rank sends to every other: top-k, sign, TernGrad, QSGD.
//
// A codec is a pure function of `values` (n), contiguous, in fp32 or fp64. Code length depends only on the element
// count. Numbers in a code have the dtype of `values` where nothing else is said, in the byte order of x86. A tensor
// that is not finite decodes to one that is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <ATen/core/Tensor.h>

#include "trainer/distributed/compression/random_draw.h"

namespace gloo_bypass::trainer {

class Codec {
 public:
  virtual ~Codec() = default;
  // Of `count` values of `valueBytes` each.
  virtual int64_t codeBytes(int64_t count, int64_t valueBytes) const = 0;
  // Writes all bytes of `code`.
  virtual void encode(const at::Tensor& values, std::span<std::byte> code, const DrawPlace& place) const = 0;
  // Adds `factor` times the decoded values to `sum` (n), contiguous. The code may come from another rank: indices
  // outside of `sum` are ignored.
  virtual void addDecoded(std::span<const std::byte> code, double factor, const at::Tensor& sum) const = 0;
};

// The share `ratio` of the elements, at least one, with the largest magnitudes: 32-bit indices, ascending, then values
// (Stich et al., Sparsified SGD with Memory, 2018, definition 2.1). Of equal magnitudes those that come first are
// sent. `halves`: values as fp16, finite ones beyond its range as its largest.
std::unique_ptr<Codec> makeTopKCodec(double ratio, bool halves = false);
// One bit an element, and the mean magnitude (Karimireddy et al. 2019, definition of the scaled sign; Seide et al. 2014
// have two means).
std::unique_ptr<Codec> makeSignCodec();
// s_t sign(g) b, with b 1 by chance |g| / s_t and s_t the largest magnitude; two bits an element (Wen et al., TernGrad,
// 2017, equations 1 to 3).
std::unique_ptr<Codec> makeTernGradCodec();
// |v| / norm rounded at random to one of `levels` + 1 levels, with the norm of each 512 elements (Alistarh et al.,
// QSGD, 2017, section 3.1, buckets as in section 4); as many bits an element as 2 levels + 1 codes need.
std::unique_ptr<Codec> makeQsgdCodec(int64_t levels);

}  // namespace gloo_bypass::trainer
