/*
 * Collectives for programs in other languages: a table of C functions, so that the Python door links with no library of
 * ours and one build of it serves every Python and PyTorch.
 *
 * Every function may be called from any thread. No exception leaves them. Errors are one line, written into `error`
 * (cut to `capacity` bytes, zero included), and a code: 0 success, else an enum gloo_bypass_failure.
 */
#ifndef GLOO_BYPASS_COLLECTIVES_H_
#define GLOO_BYPASS_COLLECTIVES_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GLOO_BYPASS_COLLECTIVES_VERSION 3

enum gloo_bypass_failure {
  GLOO_BYPASS_INVALID = 1, /* ranks called different operations */
  GLOO_BYPASS_TIMED_OUT = 2,
  GLOO_BYPASS_PEER_LOST = 3, /* a rank ended or left */
  GLOO_BYPASS_ABORTED = 4,
  GLOO_BYPASS_FAILED = 5,  /* anything else */
  GLOO_BYPASS_ARGUMENT = 6 /* the call is wrong by itself; the group goes on */
};

/* Values as collectives/operation.h orders them. */
enum gloo_bypass_kind {
  GLOO_BYPASS_ALL_REDUCE,
  GLOO_BYPASS_REDUCE,
  GLOO_BYPASS_REDUCE_SCATTER,
  GLOO_BYPASS_ALL_GATHER,
  GLOO_BYPASS_GATHER,
  GLOO_BYPASS_BROADCAST,
  GLOO_BYPASS_SCATTER,
  GLOO_BYPASS_ALL_TO_ALL,
  GLOO_BYPASS_BARRIER
};
enum gloo_bypass_type {
  GLOO_BYPASS_BOOL,
  GLOO_BYPASS_UINT8,
  GLOO_BYPASS_INT8,
  GLOO_BYPASS_INT16,
  GLOO_BYPASS_INT32,
  GLOO_BYPASS_INT64,
  GLOO_BYPASS_FLOAT16,
  GLOO_BYPASS_BFLOAT16,
  GLOO_BYPASS_FLOAT32,
  GLOO_BYPASS_FLOAT64
};
enum gloo_bypass_reduction {
  GLOO_BYPASS_SUM,
  GLOO_BYPASS_AVERAGE,
  GLOO_BYPASS_PRODUCT,
  GLOO_BYPASS_MIN,
  GLOO_BYPASS_MAX,
  GLOO_BYPASS_AND,
  GLOO_BYPASS_OR,
  GLOO_BYPASS_XOR
};

typedef struct gloo_bypass_group gloo_bypass_group;

/* A rendezvous.h store. Functions return 0, or non-zero after writing one line into `error`. Called on the thread that
 * calls create, and on threads of the group while it lives. */
typedef struct {
  void* context;
  int (*set)(void* context, const char* key, const void* value, size_t length, char* error, size_t capacity);
  /* Waits for the key. Calls `take` once with the value. */
  int (*get)(void* context, const char* key, int64_t timeout_ms, void (*take)(void* taker, const void*, size_t),
             void* taker, char* error, size_t capacity);
  /* 1: it is there; 0: not yet; -1: error. */
  int (*has)(void* context, const char* key, char* error, size_t capacity);
  void (*release)(void* context); /* once, after the last call */
} gloo_bypass_store;

typedef struct {
  void* data;
  size_t count; /* elements */
} gloo_bypass_block;

/* operation.h's Call. `inputs` are not written. */
typedef struct {
  uint8_t kind, type, reduction, uneven;
  int32_t root;
  int64_t timeout_ms; /* 0: the group's */
  const gloo_bypass_block* inputs;
  const gloo_bypass_block* outputs;
  size_t input_blocks, output_blocks;
  /* For `run` of one piece of an operation that the caller has cut: the count that describes the whole, as
   * operation.h's Description has it. Ranks compare and name that, and cut alike. 0: no piece. */
  uint64_t whole_count;
} gloo_bypass_call;

/* group.h's Message; peer -1: a receive from any. */
typedef struct {
  int32_t peer;
  uint32_t tag;
  void* data;
  size_t bytes;
} gloo_bypass_message;

/* `failure` 0: success; `peer`: who sent, for a receive. start's runs on the thread that ends the
 * operation, or before start returns. A message's runs on whichever thread drives, or before send and receive return:
 * it must neither block nor call the group. */
typedef void (*gloo_bypass_done)(void* context, int failure, const char* error, int peer);

typedef struct {
  uint32_t version; /* GLOO_BYPASS_COLLECTIVES_VERSION */
  /* NULL: an error. `transport`, `interface`: empty for the defaults. Blocks until all ranks have come. */
  gloo_bypass_group* (*create)(int rank, int size, int64_t timeout_ms, const char* transport, const char* interface,
                               const gloo_bypass_store* store, char* error, size_t capacity, int* failure);
  void (*destroy)(gloo_bypass_group* group); /* no call may be under way */
  int (*run)(gloo_bypass_group* group, const gloo_bypass_call* call, char* error, size_t capacity);
  /* Copies *call and its arrays, not the memory that they point to. */
  void (*start)(gloo_bypass_group* group, const gloo_bypass_call* call, gloo_bypass_done done, void* context);
  /* For a thread that waits for what start began: runs it on this thread if no other has begun it. Returns once
   * reached(data) is not 0, or when only waiting is left. */
  void (*assist)(gloo_bypass_group* group, int (*reached)(void* data), void* data);
  /* What start began of a small operation ends only when somebody waits for it in assist, with the next operation, or
   * after this. */
  void (*hasten)(gloo_bypass_group* group);
  void (*send)(gloo_bypass_group* group, const gloo_bypass_message* message, gloo_bypass_done done, void* context);
  void (*receive)(gloo_bypass_group* group, const gloo_bypass_message* message, gloo_bypass_done done, void* context);
  /* Drives messages on this thread until reached(data) is not 0, for at most timeout_ms; 1: reached. `reached` must not
   * block. Without a thread here messages progress too, more slowly. */
  int (*wait)(gloo_bypass_group* group, int (*reached)(void* data), void* data, int64_t timeout_ms);
  void (*abort)(gloo_bypass_group* group);
  /* As gloo_bypass_stats_json does. */
  int (*describe)(gloo_bypass_group* group, char* buffer, size_t capacity);
  /* Of the process: what a thread that waits in run or assist asks ten times a second; `asked` returns 1 if the program
   * wants the thread back, as after Ctrl-C. The group is aborted then. NULL: nothing. */
  void (*set_interruption)(int (*asked)(void));
} gloo_bypass_collectives;

/* The table; constant. Exported by the plug-in's libraries. */
const gloo_bypass_collectives* gloo_bypass_collectives_v1(void);

#ifdef __cplusplus
}
#endif

#endif
