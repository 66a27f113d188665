// A C++ program that is linked with PyTorch and does not know the plug-in: prints the Gloo device that PyTorch makes.
#include <cstdio>
#include <exception>

#include "plugin/compatibility/torch/gloo_process_group.h"

int main() {
  try {
    std::printf("device=%s\n", gloo_bypass::torch_version::defaultDevice()->str().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
