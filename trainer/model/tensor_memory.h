// Memory for tensors: whether there is enough, and how much is in use at most.
//
// Neither resident memory nor glibc's counters say what tensors need: main.cc keeps what is freed.
#pragma once

#include <cstdint>
#include <optional>

#include "trainer/config/options.h"

namespace gloo_bypass::trainer {

// What one rank holds besides activations: parameters and gradients, AdamW's two moments, and in 16 bits fp32 masters,
// each shared among ranks as --zero says (Rajbhandari et al. 2020, figure 1). Without padding.
int64_t modelStateBytes(const Options& options, int ranks);

// What techniques keep besides, of each parameter: fp32 sums of micro-batches; what a compressor has not sent, and
// where a loss scale may undo the step, that from before it; DiLoCo's starting point and velocity.
int64_t techniqueStateBytes(const Options& options, int ranks);

// What a step of data parallelism has besides: the reducer's buckets, which hold the gradients once more, and in 16
// bits the fp32 gradients of the masters. 0 with --zero and --model-parallel.
int64_t reductionBytes(const Options& options, int ranks);

// What a rank has before --zero has shared the model: all of it, and in 16 bits the masters. 0 without.
int64_t unshardedBytes(const Options& options);

// Throws UsageError where `ranksHere` of `ranks` ranks need more than the kernel says is available (MemAvailable;
// limits of control groups are not seen). Activations are not counted: enough here may still be too little later, when
// libtorch names the bytes it could not get.
void checkMemory(const Options& options, int ranks, int ranksHere);

// checkMemory() for this rank, and countTensorBytes() where --memory-metrics wants it. Before the model is made.
void prepareMemory(const Options& options, int ranks);

// The process's largest resident memory so far.
double peakMemoryMb();

// From now on, tensors' memory is counted. Call once, before the first tensor is made that shall count.
void countTensorBytes();
// Of all tensors on CPU that any thread has made, the largest total since the last reset; nothing unless counted.
std::optional<int64_t> peakTensorBytes();
void resetPeakTensorBytes();

}  // namespace gloo_bypass::trainer
