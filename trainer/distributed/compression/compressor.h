// A method of gradient compression: averages gradients across ranks while sending fewer bytes.
//
// It compresses each tensor by itself and sends the codes of a bucket's tensors together. So the result does not depend
// on where the reducer cuts its buckets. Every rank ends with the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trainer/config/options.h"
#include "trainer/distributed/compression/codec.h"
#include "trainer/distributed/rank_state.h"

namespace gloo_bypass::trainer {

// One parameter's gradient: a view into its bucket, with the parameter's shape and dtype.
struct GradientPart {
  std::size_t parameter;  // its number in the model
  at::Tensor gradient;
};

// The other ranks. Collectives wait until they are done; every rank must call the same ones in the same order. Errors:
// exceptions of c10d.
class Wire {
 public:
  virtual ~Wire() = default;
  virtual int rank() const = 0;
  virtual int worldSize() const = 0;
  // Of all ranks, in place.
  virtual void sum(at::Tensor& tensor) = 0;
  // (n), uint8, of the same length at all ranks: by rank.
  virtual std::vector<at::Tensor> gather(const at::Tensor& bytes) = 0;
  // There were all: another bucket's may follow.
  virtual void finished() {}
};

// Several threads may reduce at a time, each other parameters; one thread calls the rest.
class Compressor {
 public:
  virtual ~Compressor() = default;
  // Replaces each gradient by the mean over ranks, as far as the method sends it. `step` from 0: what is drawn at
  // random is a function of it, the rank and the parameter.
  virtual void reduce(std::span<const GradientPart> parts, int64_t step, Wire& wire) = 0;
  // What of it must outlive the process for a run to go on exactly.
  virtual RankState state() const { return {}; }
  // From now on gradients are `factor` times as large, and so is what earlier steps owe them.
  virtual void scaleOwed(double /*factor*/) {}
};

// Of a method whose codes are gathered.
std::unique_ptr<Codec> makeCodec(const CompressionOptions& options);
// `parameters`: the model's, in its order, with their names; only names, shapes and dtypes are looked at.
std::unique_ptr<Compressor> makeCompressor(const CompressionOptions& options,
                                           const std::vector<std::pair<std::string, at::Tensor>>& parameters,
                                           uint64_t seed);

}  // namespace gloo_bypass::trainer
