// A question that a forked child answers, so that whatever finding the answer starts, opens or breaks ends with that
// child.
//
// Thread: any; other threads may run. The child has the calling thread only, writes nothing to stdout or stderr, runs
// no exit handler, and dies with the calling thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace gloo_bypass {

struct ChildAnswer {
  bool answered = false;
  std::string text;  // what `ask` returned; if not answered: what it threw, or how the child ended
};

// Runs `ask` in a child for at most `bound`; then the child is killed. Nothing of the child is left when this returns,
// unless the kernel keeps it for seconds longer.
ChildAnswer answerOfChild(const std::function<std::string()>& ask, std::chrono::milliseconds bound);

}  // namespace gloo_bypass
