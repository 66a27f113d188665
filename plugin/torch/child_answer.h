// Answers a question in a forked child, so that everything the answer starts, opens or breaks ends with that child.
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
  std::string text;  // the result of `ask`; if not answered: its exception, or how the child ended
};

// Runs `ask` in a child for at most `bound`, then kills the child. Nothing of the child is left on return, unless the
// kernel keeps it for seconds longer.
ChildAnswer answerOfChild(const std::function<std::string()>& ask, std::chrono::milliseconds bound);

}  // namespace gloo_bypass
