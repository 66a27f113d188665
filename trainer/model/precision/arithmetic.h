// The model's operators in 16 bits as well as in 32 and 64.
//
// In fp32 and fp64 each function is ATen's operator of that name and nothing else. In bf16 and fp16 its operands are
// widened to fp32, ATen computes in fp32, and the result is rounded to 16 bits: storage in 16 bits, sums in fp32, as
// tensor cores and AMX have it (Micikevicius et al. 2018, section 3.3), also where libtorch lacks a kernel: 1.13
// multiplies no fp16 matrices on a CPU. Products of bf16 matrices are libtorch's own where the processor has
// instructions for them (AVX512-BF16) and libtorch sums in fp32 by them. Backward does the same: a gradient is rounded
// where it leaves an operator. The loss stays fp32, as autocast leaves it.
#pragma once

#include <ATen/core/Tensor.h>

#include "trainer/config/options.h"

namespace gloo_bypass::trainer::arithmetic {

at::ScalarType scalarTypeOf(Precision precision);
// In which the operators below compute, of tensors of `type`.
at::ScalarType computedIn(at::ScalarType type);

at::Tensor addmm(const at::Tensor& bias, const at::Tensor& x,
                 const at::Tensor& weight);                    // (C'), (N, C), (C, C') -> (N, C')
at::Tensor mm(const at::Tensor& x, const at::Tensor& weight);  // (N, C), (C, C') -> (N, C')
at::Tensor bmm(const at::Tensor& x, const at::Tensor& y);      // (B, T, S), (B, S, U) -> (B, T, U)
// sum + factor x y, of (B, T, U), (B, T, S), (B, S, U)
at::Tensor baddbmm(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& y, double factor);
at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids);  // (V, C), (B, T) int64 -> (B, T, C)
at::Tensor softmax(const at::Tensor& x);                                // over the last dimension
at::Tensor layerNorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double epsilon);  // (N, C), (C), (C)
at::Tensor gelu(const at::Tensor& x);  // by tanh
at::Tensor dropout(const at::Tensor& x, double probability);
at::Tensor crossEntropy(const at::Tensor& logits,
                        const at::Tensor& targets);  // (N, V), (N) int64 -> a scalar, fp32 of 16 bits

}  // namespace gloo_bypass::trainer::arithmetic
