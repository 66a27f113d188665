// Whether the Gloo inside this process's PyTorch is laid out as the headers that this library was compiled with say.
//
// A wheel carries Gloo in libtorch_cpu.so and no headers of it. A missing function is found by the dynamic linker when
// this library is loaded; what it cannot find is a class whose virtual functions are others, or in another order, or
// that has another member. So eight classes that libtorch_cpu.so exports the virtual tables of are compared with
// classes derived here, and a context is made to see how large it is.
//
// Thread: any.
#pragma once

#include <string>

namespace gloo_bypass {

// Empty if it is; else one line that names the first class that is not, and how.
std::string whatDoesNotFit();

}  // namespace gloo_bypass
