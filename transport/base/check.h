// Always-on check for programmers' errors (never for input from a peer, a file or a user).
#pragma once

#include <cstdio>
#include <cstdlib>

#define GLOO_BYPASS_CHECK(condition)                                                                      \
  do {                                                                                                    \
    if (!(condition)) [[unlikely]] {                                                                      \
      std::fprintf(stderr, "gloo-bypass: %s:%d: broken invariant: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                                       \
    }                                                                                                     \
  } while (false)
