// Copies between a GPU and pinned memory for short vectors, by CUDA's driver: in Python the way through PyTorch takes
// longer than they do. Any thread; without the GIL.
#pragma once

#include <cstddef>

namespace gloo_bypass::door {

// A driver's stream: PyTorch's, as DLPack gives it.
using GpuStream = void*;

// Whether the driver is there and this thread's current GPU is number `device`.
bool isCurrentGpu(int device);

// Both return once what the stream had to do, and the copy, are done; false: the driver refuses.
bool copyFromGpu(GpuStream stream, void* host, const void* gpu, std::size_t size);
// Shorter ones than kInlinedBelow also write to `host` from there on, half of their size.
bool copyToGpu(GpuStream stream, void* gpu, void* host, std::size_t size);

// From here to twice this size the driver copies by its copy engine. Shorter ones it writes by the engine that
// computes, and where processes share a GPU, that one changes between them every 250 us: copyToGpu() makes two rows of
// them.
inline constexpr std::size_t kInlinedBelow = 32u << 10;

}  // namespace gloo_bypass::door
