// Checks that the Gloo inside this process's PyTorch has the layout of the headers this library was compiled with.
//
// A wheel carries Gloo in libtorch_cpu.so, without its headers. The dynamic linker finds a missing function when it
// loads this library. It cannot find a class with other virtual functions, another order of them, or another member. So
// this file compares eight classes that have their virtual tables exported by libtorch_cpu.so with classes derived
// here, and makes a context to see how large it is.
//
// Thread: any.
#pragma once

#include <string>

namespace gloo_bypass {

// Empty if it fits; else one line that names the first class that does not, and the difference.
std::string whatDoesNotFit();

}  // namespace gloo_bypass
