/* The plug-in's functions for programs that load it at run time (dlopen + dlsym), from C or C++. */
#ifndef GLOO_BYPASS_H_
#define GLOO_BYPASS_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Writes the transport's counters, a JSON object, as a string of at most `capacity` bytes with its terminating zero;
 * cuts it if it is longer. Returns the size of the whole, terminating zero included, so a call with (NULL, 0) returns
 * the required size; the counters grow, so pass some more than that. "{}" before the first device was made; in a
 * program with devices of several transports, an object with each transport's counters under its name. Each object also
 * names its transport: "transport": "DPDK". -1: there are no counters; gloo_bypass_register says why there is no
 * transport. Thread: any, but not from inside one of the transport's own callbacks. `buffer` stays the caller's.
 */
int gloo_bypass_stats_json(char* buffer, size_t capacity);

/*
 * Writes, in the same way, which transports would work for this process, here and with its environment: {"TCP":
 * {"available": true, "device": "what it would use", "reason": ""}, "DPDK": {...}, ...}; if one does not work, `reason`
 * is one line: what is missing and what to do. Every call really makes each transport, in a child process that has
 * ended when this returns, and leaves nothing behind but DPDK's empty runtime folder: it takes a fraction of a second,
 * at most 60 s for each. Pass a buffer (16 KiB is plenty) instead of (NULL, 0). -1: out of memory, or there is no
 * transport and gloo_bypass_register says why. Thread: any, but not from inside one of the transport's own callbacks.
 * `buffer` stays the caller's.
 */
int gloo_bypass_available_json(char* buffer, size_t capacity);

/*
 * Registers the transports with PyTorch. libgloo_bypass.so, built for one PyTorch, has done so when it was loaded; the
 * libraries of the wheel for PyTorch from pip do it here, after verifying that PyTorch's Gloo is the one that they were
 * built for. Writes, in the same way, an empty string, or one line that says why nothing is registered. Later calls do
 * nothing and return the same, except that libgloo_bypass.so looks again if it has found no PyTorch in the process yet.
 * -1: out of memory. Thread: the one that loads the library. `buffer` stays the caller's.
 */
int gloo_bypass_register(char* buffer, size_t capacity);

#ifdef __cplusplus
}
#endif

#endif
