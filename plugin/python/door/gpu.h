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
// A copy that is shorter than kInlinedBelow also writes half of its size to `host`, from kInlinedBelow on.
bool copyToGpu(GpuStream stream, void* gpu, void* host, std::size_t size);

// From this size on the driver copies by its copy engine. What is shorter it writes by the engine that computes, and
// where processes share a GPU, that engine changes between them every 250 us. So copyToGpu() makes two rows of it.
inline constexpr std::size_t kInlinedBelow = 32u << 10;

}  // namespace gloo_bypass::door
