// In place of CUDA's driver, where the short way of a GPU's vectors is tested (programs/on_device.py): memory is the
// host's. Counts what was asked, and refuses it where the program says so.
#include <cstddef>
#include <cstdint>
#include <cstring>

extern "C" {

int fake_device, fake_copies_in, fake_copies_out, fake_rows, fake_pending, fake_refuses_in, fake_refuses_out,
    fake_refuses_rows;

struct Copy2d {  // CUDA_MEMCPY2D
  std::size_t sourceX, sourceY;
  std::int32_t sourceType;
  const char* sourceHost;
  std::uintptr_t sourceDevice;
  void* sourceArray;
  std::size_t sourcePitch;
  std::size_t targetX, targetY;
  std::int32_t targetType;
  void* targetHost;
  char* targetDevice;
  void* targetArray;
  std::size_t targetPitch;
  std::size_t width, height;
};

int cuCtxGetDevice(int* device) {
  *device = fake_device;
  return 0;
}

int cuMemcpyDtoHAsync_v2(void* host, const void* gpu, std::size_t size, void*) {
  if (fake_refuses_in != 0) return 719;
  ++fake_copies_in;
  ++fake_pending;
  std::memcpy(host, gpu, size);
  return 0;
}

int cuMemcpyHtoDAsync_v2(void* gpu, const void* host, std::size_t size, void*) {
  if (fake_refuses_out != 0) return 719;
  ++fake_copies_out;
  ++fake_pending;
  std::memcpy(gpu, host, size);
  return 0;
}

int cuMemcpy2DAsync_v2(const Copy2d* copy, void*) {
  if (fake_refuses_out != 0 || fake_refuses_rows != 0) return 719;
  const bool valid = copy->sourceType == 1 && copy->targetType == 2 && copy->sourcePitch >= copy->width &&
                     copy->targetPitch >= copy->width && copy->sourceX + copy->sourceY == 0 &&
                     copy->targetX + copy->targetY == 0;
  if (!valid) return 1;
  ++fake_rows;
  ++fake_pending;
  for (std::size_t i = 0; i < copy->height; ++i) {
    std::memcpy(copy->targetDevice + i * copy->targetPitch, copy->sourceHost + i * copy->sourcePitch, copy->width);
  }
  return 0;
}

int cuStreamSynchronize(void* stream) {
  if (stream != reinterpret_cast<void*>(0x77)) return 400;
  fake_pending = 0;
  return 0;
}
}
